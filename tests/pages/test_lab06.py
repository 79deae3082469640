"""Page 6: the table of a sweep, remedies, and one worker beside two, from made-up records."""

from __future__ import annotations

import dataclasses

import pytest

from labs import lab06_memory as lab
from labs.pages import lab06 as page

TINY = dataclasses.replace(lab.PRESETS["demo"], depth=5, width=4, images=32, image_size=32, batch_size=16, epochs=2)


def run(depth: int, width: int, size: int, fits: bool, **changes) -> dict:
    config = dataclasses.asdict(dataclasses.replace(TINY, depth=depth, width=width, batch_size=16 // size))
    layout = {"size": size, "nodes": 1, "global_batch_size": 16, "threads": 1}
    timings = {"images_per_sec": 50.0 if fits else None, "seconds_per_epoch": 0.5 * depth if fits else None}
    return {"lab": "lab06_memory", "run": f"{depth}-{width}-{size}", "started": "", "config": config | changes,
            "layout": layout, "machine": {}, "timings": timings,
            "metrics": {"fits": fits, "peak_mb": 100.0 * depth * width / size} | ({"test_psnr": 21.0} if fits else {})}


def test_the_summary_shows_what_does_not_fit_and_what_helps():
    runs = [run(8, 8, 1, fits=False), run(8, 8, 2, fits=True), run(8, 8, 1, fits=True, remedy="recompute")]
    head, *rows = [line.split() for line in page.summary(runs).splitlines()]
    assert head[3:8] == ["remedy", "batch_size", "size", "fits", "peak_mb"]
    assert [row[3:8] for row in rows] == [["none", "16", "1", "False", "6400.0"], ["none", "8", "2", "True", "3200.0"],
                                          ["recompute", "16", "1", "True", "6400.0"]]


def seeded(size: int, seed: int, images_per_sec: float, psnr: float, remedy: str = "none") -> dict:
    """Return a made-up record of depth 8 and width 4."""
    record = run(8, 4, size, fits=True, remedy=remedy, seed=seed)
    record["timings"]["images_per_sec"] = images_per_sec
    record["metrics"] |= {"test_psnr": psnr, "peak_mb": 500.0 + seed}
    return record | {"run": f"{size}-{seed}-{remedy}"}


def test_two_workers_are_compared_with_one_at_the_same_seed():
    runs = [seeded(size, seed, 50.0 * size * 0.9 ** (size - 1), 21 + seed + 0.01 * size)
            for size in (1, 2) for seed in (1, 2, 3)]
    (row,) = page.compare_workers(runs).itertuples()
    assert row.Index == (8, 4)
    assert row.speedup == pytest.approx(1.8)
    assert row.psnr == pytest.approx(23.01)
    assert row.apart == pytest.approx(0.01), "not the spread of the seeds"


def test_remedies_are_means_over_seeds_with_their_interval():
    runs = [seeded(1, seed, 50.0, 21.0 + seed - 0.1 * (remedy != "none"), remedy)
            for remedy in ("none", "bfloat16") for seed in (1, 2, 3)]
    smaller = seeded(1, 1, 50.0, 21.0) | {"run": "smaller"}
    smaller["config"] = smaller["config"] | {"batch_size": 4}
    table = page.remedy_table([*runs, smaller], {"none": "none", "smaller": "batch / 4", "bfloat16": "bfloat16"})
    assert list(table.index) == ["none", "batch / 4", "bfloat16"]
    assert table.loc["none", "s per epoch"] == "4.00 (4.00 to 4.00)"
    assert table.loc["batch / 4", "s per epoch"] == "4.00", "one seed has no interval"
    assert table.loc["bfloat16", "PSNR - that of none (dB)"] == "-0.10 (-0.10 to -0.10)", "at the same seed"
