"""Figures of page 1: the cost of a step, and how busy a GPU is."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from labs.pages import plots
from labs.pages.laws import StepCost

BATCH = "batch size b (images per step)"


def step_times(turns: pd.DataFrame, cost: StepCost) -> Figure:
    """Draw one worker's measured steps over the batch size, with the fitted cost: their time, and their throughput.

    `turns` has the columns `batch_size` (images) and `seconds` of a step: a row per turn and batch size.
    """
    left, right = plots.panels(2, 3.4)
    measured, ticks = turns["batch_size"], sorted(set(turns["batch_size"]))
    batch = np.geomspace(ticks[0], ticks[-1])
    fixed, fastest = 1e3 * cost.fixed.value, 1 / cost.per_image.value
    for axes, dots, curve, limit, name in (
            (left, 1e3 * turns["seconds"], 1e3 * cost.seconds(batch), fixed, f"$a$ = {fixed:.2g} ms"),
            (right, measured / turns["seconds"], batch / cost.seconds(batch), fastest,
             f"$1/c$ = {fastest:,.0f} images/s")):
        axes.plot(measured, dots, "o", color=plots.COLOURS[0], alpha=0.5, label="one turn")
        axes.plot(batch, curve, color="0.3", label="fit: $t(b) = a + c\\,b$")
        if limit > 0:  # The fit of a disturbed run may have a < 0, which a logarithmic axis cannot show.
            axes.axhline(limit, color="0.3", linestyle=":", label="bound: $t > a$, throughput $< 1/c$")
            axes.annotate(name, (1, limit), (4, 0), ("axes fraction", "data"), "offset points", va="center", fontsize=9)
        plots.set_log_ticks(axes, "x", ticks)
        axes.set_xlabel(BATCH)
    left.set(yscale="log", ylabel="time of a step (ms)")
    left.yaxis.set_major_formatter("{x:g}")
    if cost.per_image.low > 0:
        right.axhspan(1 / cost.per_image.high, 1 / cost.per_image.low, color="0.9", label="95 % interval of $1/c$")
    right.set(ylim=(0, None), ylabel="throughput (images/s)")
    return plots.finish(right, loc="lower left", bbox_to_anchor=(1.05, 0))


def busy_and_fast(gpu: pd.DataFrame, report: pd.Series, half: float) -> Figure:
    """Draw how busy GPUs are over the batch size (the index of both), and the throughput of the measured one.

    `half` is the batch that keeps report M's GPU half busy, by the formula b / (b + half).
    """
    left, right = plots.panels(2, 3.6)
    batch = np.geomspace(gpu.index[0], gpu.index[-1])
    left.plot(gpu.index, gpu["gpu0_percent"], "-o", color=plots.COLOURS[0], label="H200, measured")
    left.plot(report.index, report, "s", color=plots.COLOURS[1], label="report M's GPU")
    left.plot(batch, 100 * batch / (batch + half), "--", color=plots.COLOURS[1],
              label=f"formula: $b / (b + {half:.0f})$")
    right.plot(gpu.index, gpu["images_per_sec"], "-o", color=plots.COLOURS[0])
    left.set(xlabel=BATCH, ylim=(0, 100), ylabel="time with a kernel running (%)")
    right.set(xlabel=BATCH, ylim=(0, None), ylabel="throughput of the H200 (images/s)")
    right.yaxis.set_major_formatter("{x:,.0f}")
    for axes in (left, right):
        plots.set_log_ticks(axes, "x", list(gpu.index))
    return plots.finish_below(left, 3)
