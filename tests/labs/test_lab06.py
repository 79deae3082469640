"""Lab 6: what does not fit is a result; workers hold the whole network; what helps is measured."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from labs import lab06_memory as lab
from labs.launch import local
from labs.measure import memory
from labs.results import records
from labs.run.errors import LabError
from tests.exercises.solved import solved

TINY = dataclasses.replace(lab.PRESETS["demo"], depth=5, width=4, images=32, image_size=32, batch_size=16, epochs=2)
LARGE = dataclasses.replace(TINY, depth=12, width=16, batch_size=128)


@pytest.fixture(autouse=True)
def _own_results(tmp_path, monkeypatch):
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path / "results"))


def peak(**changes) -> float:
    return memory.probe(lab.one_step, dataclasses.replace(LARGE, **changes), 1).peak_mb


def test_what_helps_and_what_does_not():
    """One activation of a layer is 8 MiB. The trial begins at some 350 MiB, which no remedy touches."""
    plain, empty = peak(), peak(batch_size=1)
    assert plain - empty > 12 * 8

    def share(**changes) -> float:
        return (peak(**changes) - empty) / (plain - empty)

    assert 0.4 < share(batch_size=64) < 0.7, "of two workers each holds half of the activations"
    assert 0.15 < share(remedy="pieces") < 0.45
    assert 0.2 < share(remedy="recompute") < 0.75
    assert 0.3 < share(remedy="bfloat16") < 0.85


@pytest.mark.workers
def test_two_workers_train_in_pieces_and_tell_their_peak():
    record = local.run(lab, dataclasses.replace(TINY, remedy="pieces"), workers=2, oversubscribe=True)
    assert record["metrics"]["fits"]
    assert not record["machine"]["onednn"], "its copies would hide what a remedy saves"
    kernel = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not kernel.exists() or "[always]" not in kernel.read_text():
        assert record["machine"]["huge_pages_mb"] < 30, "what lies in them is counted by whole pages"
    assert record["metrics"]["parameters"] == lab.parameters(TINY)
    assert 200 < record["metrics"]["peak_mb"] < TINY.memory_limit_mb
    assert [row["steps"] for row in record["history"]] == [1, 1], "pieces do not make more steps"
    assert record["history"][0]["psnr"] == pytest.approx(20.2, abs=0.5), "the noise alone: 20 log10(255 / 25)"
    metrics = record["metrics"]
    assert metrics["noisy_psnr"] == pytest.approx(20.17, abs=0.1), "the noise alone: 20 log10(255 / 25)"
    assert metrics["noisy_psnr"] < metrics["test_psnr"] < metrics["noisy_psnr"] + 2, "two steps have learnt a little"
    solved("lab06.q1", "lab06.q2")


@pytest.mark.workers
def test_what_does_not_fit_is_a_record(capsys):
    record = local.run(lab, dataclasses.replace(TINY, memory_limit_mb=100), workers=2, oversubscribe=True)
    assert "does not fit: more than 100 MiB" in capsys.readouterr().out
    assert record["history"] == []
    assert not record["metrics"]["fits"]
    assert record["metrics"]["parameters"] == lab.parameters(TINY)
    frame = records.load("lab06_memory")
    assert list(frame["fits"]) == [False]


def test_the_search_finds_the_largest_batch():
    limit = round(peak(depth=4, batch_size=200))
    config = dataclasses.replace(LARGE, depth=4, search="batch_size", memory_limit_mb=limit, batch_size=110)
    record = lab.run(config)
    trials = {row["batch_size"]: row["fits"] for row in record["tables"]["trials"]}
    found = int(record["metrics"]["largest_batch_size"])
    assert trials[found]
    assert found == max(value for value, fits in trials.items() if fits)
    assert found == pytest.approx(200, rel=0.15)
    above = min(value for value, fits in trials.items() if not fits)
    assert above - found <= max(1, found / 16)
    solved("lab06.q3")


def test_a_batch_that_cannot_be_cut_is_refused():
    with pytest.raises(LabError, match="a batch of 30 cannot be cut into 4 equal pieces"):
        lab.run(dataclasses.replace(TINY, batch_size=30, remedy="pieces"))


def run(depth: int, width: int, size: int, fits: bool, **changes) -> dict:
    config = dataclasses.asdict(dataclasses.replace(TINY, depth=depth, width=width, batch_size=16 // size))
    layout = {"size": size, "nodes": 1, "global_batch_size": 16, "threads": 1}
    timings = {"images_per_sec": 50.0 if fits else None, "seconds_per_epoch": 0.5 * depth if fits else None}
    return {"lab": "lab06_memory", "run": f"{depth}-{width}-{size}", "started": "", "config": config | changes,
            "layout": layout, "machine": {}, "timings": timings,
            "metrics": {"fits": fits, "peak_mb": 100.0 * depth * width / size} | ({"test_psnr": 21.0} if fits else {})}


def test_the_summary_shows_what_does_not_fit():
    """The records are made up: what is tested is how they are told."""
    runs = [run(depth, width, size, fits=depth * width / size <= 32)
            for depth in (4, 8) for width in (2, 8) for size in (1, 2)]
    told = lab.summary(runs)
    peaks = told.partition("\n\n")[0].splitlines()
    assert peaks[0] == "peak memory of a worker (MiB), 1 worker, depth x width:"
    assert peaks[-2].split() == ["4", "800.0", "3200.0"]
    assert peaks[-1].split() == ["8", "1600.0", "no", "fit"]
    assert told.count("no fit") == 3, "for memory, time and PSNR, on one worker; two hold half of the batch each"
    figures = dict(lab.drawn(runs))
    assert set(figures) == set(lab.VALUES.values())
    assert all(len(figure.axes) == 3 for figure in figures.values()), "two heatmaps and a scale"
    assert [words(figure) for figure in figures.values()] == [["does not\nfit"]] * 3


def test_the_heatmap_of_psnr_says_what_the_noisy_pictures_have():
    runs = [run(depth, width, 1, fits=True) for depth in (4, 8) for width in (2, 8)]
    for made in runs:
        made["metrics"]["noisy_psnr"] = 20.172
    assert [title for title, _ in lab.drawn(runs)][-1] == "PSNR (dB); the noisy pictures have 20.17"
    assert "PSNR (dB); the noisy pictures have 20.17, 1 worker, depth x width:" in lab.summary(runs)


def words(figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts if not text.get_text()[0].isdigit()]


def test_what_nobody_has_tried_is_not_said_to_fit_or_not():
    runs = [run(depth, width, size, fits=True) for depth in (4, 8) for width in (2, 8) for size in (1, 2)][:-1]
    told = lab.summary(runs)
    assert (told.count("no run"), told.count("no fit")) == (3, 0)
    assert [words(figure) for _, figure in lab.drawn(runs)] == [["no run"]] * 3


def test_the_summary_tells_what_helps():
    runs = [run(8, 4, 1, fits=True, remedy=remedy) | {"run": remedy} for remedy in ("none", "pieces", "recompute")]
    told = lab.summary(runs)
    assert told.splitlines()[0] == "what helps at depth 8, width 4:"
    assert all(remedy in told for remedy in ("none", "pieces", "recompute"))
