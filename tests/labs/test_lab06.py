"""Lab 6: what does not fit is a result; workers hold the whole network; what helps is measured."""

from __future__ import annotations

import dataclasses

import pytest

from labs import lab06_memory as lab
from labs.launch import local
from labs.measure import memory
from labs.results import records
from labs.run import resources
from tests.exercises.solved import solved

TINY = dataclasses.replace(lab.PRESETS["demo"], depth=5, width=4, images=32, image_size=32, batch_size=16, epochs=2)
LARGE = dataclasses.replace(TINY, depth=12, width=16, batch_size=128)


def peak(**changes) -> float:
    return memory.probe(lab.one_step, dataclasses.replace(LARGE, **changes), 1).peak_mb


@pytest.mark.slow
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
    assert record["metrics"]["parameters"] == lab.parameters(TINY)
    assert 200 < record["metrics"]["peak_mb"] < TINY.memory_limit_mb
    assert [row["steps"] for row in record["history"]] == [1, 1], "pieces do not make more steps"
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


@pytest.mark.slow
def test_the_search_finds_the_largest_batch():
    fits = dataclasses.replace(LARGE, depth=4, batch_size=200, threads=0)
    limit = round(memory.probe(lab.one_step, fits, resources.cores()).peak_mb)
    record = lab.run(dataclasses.replace(fits, search="batch_size", memory_limit_mb=limit, batch_size=110))
    trials = {row["batch_size"]: row["fits"] for row in record["tables"]["trials"]}
    result = int(record["metrics"]["largest_batch_size"])
    assert trials[result]
    assert result == max(value for value, fits in trials.items() if fits)
    assert result == pytest.approx(200, rel=0.15)
    above = min(value for value, fits in trials.items() if not fits)
    assert above - result <= max(1, result / 16)
    solved("lab06.q3")
