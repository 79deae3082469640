"""What a figure shows is what its table says, and each committed drawing has its program and its page."""

import math
import runpy

import numpy as np
import pandas as pd
import pytest

from labs.pages import lab02, plots
from labs.results import scaling
from labs.run.paths import ROOT


def test_every_drawing_is_committed_and_shown_on_a_page():
    names = runpy.run_path(str(ROOT / "notebooks/drawings.py"))["DRAWINGS"]
    pages = "".join(path.read_text() for path in (*ROOT.glob("notebooks/*.ipynb"), *ROOT.glob("docs/*.md")))
    assert {path.stem for path in ROOT.glob("docs/pictures/*.svg")} == {*names, "step"}
    for name in names:
        assert f"pictures/{name}.svg)" in pages


def test_speedups_have_their_intervals_and_a_shade_from_the_cores_on():
    frame = pd.DataFrame([{"lab": "x", "batch_size": batch, "seed": seed, "size": size, "nodes": 1,
                           "images_per_sec": batch * size**0.8 * (1 + 0.05 * seed)}
                          for batch in (32, 128) for size in (1, 2, 4) for seed in (1, 2)])
    frame.attrs["config"] = ["batch_size", "seed"]
    table = scaling.speedups(frame)
    (axes,) = plots.scaling(table, ["batch_size"]).axes
    segment = axes.containers[0].lines[2][0].get_segments()[1]
    assert segment[:, 1].tolist() == pytest.approx(table.iloc[1][["speedup_low", "speedup_high"]].tolist())
    report = pd.DataFrame({"size": [1, 4], "speedup": [1, 1.6]})
    (axes,) = plots.speedup_panels({"b = 32": {"ours": table[table["batch_size"] == 32], "theirs": report}}, 2).axes
    assert axes.containers[1].lines[2] == (), "a report has no intervals"
    assert axes.patches[0].get_x() == 2.5


def test_the_parts_of_a_ledger_stand_on_each_other():
    """Bars are means, as in the table: the medians of these three runs would not sum to the wall time."""
    ledger = {"wall": 10.0, "input": 1.0, "compute": 6.0, "communication": 2.0, "start": 0.0, "other": 1.0}
    parts = [ledger | {"wall": 7.0, "compute": 3.0}] * 2 + [ledger | {"wall": 16.0, "compute": 12.0}]
    frame = pd.DataFrame([{f"ledger_{part}_seconds": value for part, value in each.items()} | {"size": 2}
                          for each in parts])
    axes = plots.ledger(frame).axes[0]
    assert [bar.get_height() for bar in axes.patches] == [1, 6, 2, 0, 1]
    assert [bar.get_y() for bar in axes.patches] == [0, 1, 7, 9, 9]


def test_paths_have_their_distance_and_each_rank_the_minimum_of_its_own_examples():
    apart = [[(3, 1.5), (0.4, -0.1)], [(3, 1.5), (0.9, 0.3)]]
    x, y = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [2.0, 1.0]]), np.array([[2.0], [1.0], [-2.0], [3.0]])
    first, second = lab02.least_squares_paths({"no all-reduce": apart, "both": [apart[0]] * 2}, x, y).axes
    assert first.get_title().endswith(f" {math.dist(apart[0][-1], apart[1][-1]):.2g} apart")
    assert second.get_title().endswith(" 0 apart")
    drawn = {line.get_label(): np.ravel(line.get_data()) for line in first.lines}
    np.testing.assert_allclose(drawn["best for rank 0's examples"], [2, -2], atol=1e-9)
    np.testing.assert_allclose(drawn["best for all examples"], [7 / 3, -5 / 3])
