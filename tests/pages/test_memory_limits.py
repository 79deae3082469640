"""Lab 6's heatmaps, remedies and limits, from made-up records."""

from __future__ import annotations

import dataclasses

import pytest

from labs import lab06_memory as lab
from labs.pages import memory_limits

TINY = dataclasses.replace(lab.PRESETS["demo"], depth=5, width=4, images=32, image_size=32, batch_size=16, epochs=2)


def run(depth: int, width: int, size: int, fits: bool, **changes) -> dict:
    config = dataclasses.asdict(dataclasses.replace(TINY, depth=depth, width=width, batch_size=16 // size))
    layout = {"size": size, "nodes": 1, "global_batch_size": 16, "threads": 1}
    timings = {"images_per_sec": 50.0 if fits else None, "seconds_per_epoch": 0.5 * depth if fits else None}
    return {"lab": "lab06_memory", "run": f"{depth}-{width}-{size}", "started": "", "config": config | changes,
            "layout": layout, "machine": {}, "timings": timings,
            "metrics": {"fits": fits, "peak_mb": 100.0 * depth * width / size} | ({"test_psnr": 21.0} if fits else {})}


def test_the_summary_shows_what_does_not_fit():
    """The records are made up: what is tested is how they are shown."""
    runs = [run(depth, width, size, fits=depth * width / size <= 32)
            for depth in (4, 8) for width in (2, 8) for size in (1, 2)]
    text = memory_limits.summary(runs)
    peaks = text.partition("\n\n")[0].splitlines()
    assert peaks[0] == "peak memory of a worker (MiB), 1 worker, depth x width:"
    assert peaks[-2].split() == ["4", "800.0", "3200.0"]
    assert peaks[-1].split() == ["8", "1600.0", "no", "fit"]
    assert text.count("no fit") == 3, "for memory, time and PSNR, on one worker; two hold half of the batch each"
    figures = dict(memory_limits.figures(runs))
    assert set(figures) == set(memory_limits.TITLES.values())
    assert all(len(figure.axes) == 3 for figure in figures.values()), "two heatmaps and a scale"
    assert [words(figure) for figure in figures.values()] == [["does not\nfit"]] * 3


def words(figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts if not text.get_text()[0].isdigit()]


def test_the_summary_shows_what_helps():
    runs = [run(8, 4, 1, fits=True, remedy=remedy) | {"run": remedy} for remedy in ("none", "pieces", "recompute")]
    text = memory_limits.summary(runs)
    assert text.splitlines()[0] == "what helps at depth 8, width 4:"
    assert all(remedy in text for remedy in ("none", "pieces", "recompute"))


def seeded(size: int, seed: int, images_per_sec: float, psnr: float, remedy: str = "none") -> dict:
    """Return a made-up record of depth 8 and width 4."""
    record = run(8, 4, size, fits=True, remedy=remedy, seed=seed)
    record["timings"]["images_per_sec"] = images_per_sec
    record["metrics"] |= {"test_psnr": psnr, "peak_mb": 500.0 + seed}
    return record | {"run": f"{size}-{seed}-{remedy}"}


def test_two_workers_are_compared_with_one_at_the_same_seed():
    runs = [seeded(size, seed, 50.0 * size * 0.9 ** (size - 1), 21 + seed + 0.01 * size)
            for size in (1, 2) for seed in (1, 2, 3)]
    (row,) = memory_limits.one_and_two(runs).itertuples()
    assert row.Index == (8, 4)
    assert row.speedup == pytest.approx(1.8)
    assert row.psnr == pytest.approx(23.01)
    assert row.apart == pytest.approx(0.01), "not the spread of the seeds"


def test_remedies_are_means_over_seeds_with_their_interval():
    runs = [seeded(1, seed, 50.0, 21.0 + seed - 0.1 * (remedy != "none"), remedy)
            for remedy in ("none", "bfloat16") for seed in (1, 2, 3)]
    smaller = seeded(1, 1, 50.0, 21.0) | {"run": "smaller"}
    smaller["config"] = smaller["config"] | {"batch_size": 4}
    table = memory_limits.remedies([*runs, smaller], {"none": "none", "smaller": "batch / 4", "bfloat16": "bfloat16"})
    assert list(table.index) == ["none", "batch / 4", "bfloat16"]
    assert table.loc["none", "s per epoch"] == "4.00 (4.00 to 4.00)"
    assert table.loc["batch / 4", "s per epoch"] == "4.00", "one seed has no interval"
    assert table.loc["bfloat16", "PSNR - that of none (dB)"] == "-0.10 (-0.10 to -0.10)", "at the same seed"
