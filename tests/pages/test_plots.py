"""What a figure says must be what the tables say: one colour for one setting."""

from __future__ import annotations

import pandas as pd
import pytest

from labs.pages import plots, step_cost
from labs.results import scaling
from tests.results.test_records import HISTORY, record


def test_measured_and_reported_lines_of_one_batch_size_have_one_colour():
    measured = pd.DataFrame({"batch_size": [16, 16, 32, 32], "size": [1, 2, 1, 2], "speedup": [1, 1.4, 1, 1.5]})
    reported = pd.DataFrame({"batch_size": [32, 32, 128, 128], "size": [1, 2, 1, 2], "speedup": [1, 1.6, 1, 1.3]})
    figure = plots.speedup(measured, reference=reported)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    colours = {label: (each.lines[0] if hasattr(each, "lines") else each).get_color()
               for each, label in zip(handles, labels, strict=True)}
    assert colours["batch 32"] == colours["report, batch 32"]
    assert len({colours[name] for name in ("batch 16", "batch 32", "report, batch 128")}) == 3


def test_a_panel_of_speedups_has_its_lines_the_ideal_and_a_shade_from_the_cores_on():
    ours = pd.DataFrame({"size": [1, 2, 4], "speedup": [1, 1.7, 1.4], "speedup_low": [None, 1.5, 1.3],
                         "speedup_high": [None, 1.8, 1.5]}, dtype=float)
    theirs = pd.DataFrame({"size": [1, 4], "speedup": [1, 1.6]})
    left, right = plots.speedup_panels({"b = 32": {"ours": ours, "theirs": theirs}, "b = 64": {"ours": ours}}, 2).axes
    assert (left.get_title(), right.get_title()) == ("b = 32", "b = 64")
    assert [text.get_text() for text in left.get_legend().get_texts()] == ["ideal", "ours", "theirs"]
    bars = left.containers[0].lines[2][0].get_segments()
    assert bars[1][:, 1].tolist() == pytest.approx([1.5, 1.8])
    assert left.containers[1].lines[2] == (), "a report has no intervals"
    assert left.patches[0].get_x() == 2.5


def test_measured_steps_lie_on_the_line_of_their_cost_in_both_panels():
    sizes = [8, 32, 128]
    cost = step_cost.fit(sizes, [0.006 + 0.0004 * size for size in sizes])
    turns = pd.DataFrame({"batch_size": sizes * 2}).assign(seconds=lambda row: cost.seconds(row["batch_size"]))
    left, right = plots.step_times(turns, cost).axes
    for axes, value, limit, unit in ((left, lambda b: 6 + 0.4 * b, 6, "(ms)"),
                                     (right, lambda b: 1000 * b / (6 + 0.4 * b), 2500, "(images/s)")):
        dots, curve, bound = axes.lines
        assert list(dots.get_ydata()) == pytest.approx([value(size) for size in sizes * 2])
        assert list(curve.get_ydata()) == pytest.approx([value(size) for size in curve.get_xdata()])
        assert list(bound.get_ydata()) == pytest.approx([limit, limit])
        assert axes.get_ylabel().endswith(unit)


def test_a_gpu_s_percentage_and_its_throughput_have_an_axis_each():
    gpu = pd.DataFrame({"gpu0_percent": [26, 54], "images_per_sec": [14_897, 262_077]}, index=[32, 8192])
    left, right = plots.busy_and_fast(gpu, pd.Series([20, 54], index=[128, 1024]), half=512).axes
    measured, report, formula = left.lines
    assert [list(measured.get_ydata()), list(report.get_xdata())] == [[26, 54], [128, 1024]]
    assert formula.get_ydata()[0] == pytest.approx(100 * 32 / 544)
    assert list(right.lines[0].get_ydata()) == [14_897, 262_077]


@pytest.mark.filterwarnings("error")
def test_the_steps_of_a_disturbed_run_are_drawn_without_the_limit_that_has_no_place():
    sizes, seconds = [32, 64, 128, 256, 512, 1024], [0.001, 0.0021, 0.0045, 0.009, 0.02, 0.05]
    cost = step_cost.fit(sizes, seconds)
    assert cost.fixed.value < 0
    figure = plots.step_times(pd.DataFrame({"batch_size": sizes, "seconds": seconds}), cost)
    figure.canvas.draw()
    assert len(figure.axes[0].lines) == 2


def test_a_band_reaches_from_the_lowest_to_the_highest_seed_around_their_mean():
    def run(*losses):
        return {"history": [{"epoch": 1 + epoch, "loss": loss, "val_accuracy": 0.1 * (1 + epoch)}
                            for epoch, loss in enumerate(losses)]}

    figure = plots.seed_bands({"linear": [run(2.0, 1.0), run(2.4, 1.6), run(2.2, 1.0)], "one seed": [run(2.3, 2.3)]})
    loss = figure.axes[0]
    assert [list(line.get_ydata()) for line in loss.lines] == [pytest.approx([2.2, 1.2]), [2.3, 2.3]]
    band = loss.collections[0].get_paths()[0].vertices
    assert {(x, round(y, 6)) for x, y in band} >= {(1, 2.0), (1, 2.4), (2, 1.0), (2, 1.6)}
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["linear", "one seed"]


def speedups() -> pd.DataFrame:
    frame = pd.DataFrame([
        {"lab": "x", "batch_size": batch, "seed": seed, "size": size, "nodes": 1,
         "images_per_sec": batch * size**0.8 * (1 + 0.05 * seed)}
        for batch in (32, 128) for size in (1, 2, 4) for seed in (1, 2)
    ])
    frame.attrs["config"] = ["batch_size", "seed"]
    return scaling.speedups(frame)


def test_speedups_are_drawn_with_intervals_and_the_ideal():
    reference = pd.DataFrame({"batch_size": [32, 32], "size": [1, 8], "speedup": [1, 2.0]})
    axes = plots.speedup(speedups(), reference=reference).axes[0]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert sorted(labels) == ["batch 128", "batch 32", "ideal", "report, batch 32"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("workers", "speedup: throughput(n) / throughput(1)")
    bars = axes.containers[0].lines[2][0].get_segments()
    row = speedups().iloc[1]
    assert bars[1][:, 1].tolist() == pytest.approx([row["speedup_low"], row["speedup_high"]])
    assert axes.get_xticks().tolist() == [1, 2, 4, 8]
    assert axes.get_ylim()[0] == 0


def test_the_parts_of_a_ledger_stand_on_each_other():
    """Bars are means, as in the table: the medians of these three runs would not sum to the wall time."""
    ledger = {"wall": 10.0, "input": 1.0, "compute": 6.0, "communication": 2.0, "start": 0.0, "other": 1.0}
    parts = [ledger | {"wall": 7.0, "compute": 3.0}] * 2 + [ledger | {"wall": 16.0, "compute": 12.0}]
    frame = pd.DataFrame([{f"ledger_{part}_seconds": value for part, value in each.items()} | {"size": 2}
                          for each in parts])
    axes = plots.ledger(frame).axes[0]
    assert [bar.get_height() for bar in axes.patches] == [1, 6, 2, 0, 1]
    assert [bar.get_y() for bar in axes.patches] == [0, 1, 7, 9, 9]
    assert axes.get_ylabel() == "seconds of one epoch"
    assert [text.get_text() for text in axes.get_xticklabels()] == ["workers 2"]


@pytest.mark.filterwarnings("error")
def test_curves_of_nothing_warn_of_nothing():
    plots.curves([record() | {"history": []}, record() | {"history": [HISTORY[0]]}])
    plots.curves([record() | {"history": []}])
    plots.curves([])
