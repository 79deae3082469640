"""Figures of page 1: the cost of a step, and how busy a GPU is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from labs.pages import plots

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from labs.pages.step_cost import StepCost


def step_times(turns: pd.DataFrame, cost: StepCost) -> Figure:
    """Draw one worker's measured steps over the batch size, with the fitted cost: their time, and their throughput.

    Args:
        turns: Columns `batch_size` (images) and `seconds` of a step: a row per turn and batch size.
        cost: From `step_cost.fit`.
    """
    figure = plots.empty(9, 3.4)
    left, right = figure.subplots(1, 2)
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
        _set_batch_axis(axes, ticks)
    left.set(ylabel="time of a step (ms)")
    _set_logarithmic(left)
    if cost.per_image.low > 0:
        right.axhspan(1 / cost.per_image.high, 1 / cost.per_image.low, color="0.9", label="95 % interval of $1/c$")
    right.set(ylim=(0, None), ylabel="throughput (images/s)")
    right.legend(fontsize=8, loc="lower left", bbox_to_anchor=(1.05, 0))
    return figure


def busy_and_fast(gpu: pd.DataFrame, report: pd.Series, half: float) -> Figure:
    """Draw how busy GPUs are over the batch size, and the throughput of the one that was measured.

    Args:
        gpu: Columns `gpu0_percent` and `images_per_sec`; the index is the batch size.
        report: Percentages of another GPU by batch size.
        half: The batch that keeps the other GPU half busy, by the formula b / (b + half).
    """
    figure = plots.empty(9, 3.6)
    left, right = figure.subplots(1, 2)
    batch = np.geomspace(gpu.index[0], gpu.index[-1])
    left.plot(gpu.index, gpu["gpu0_percent"], "-o", color=plots.COLOURS[0], label="H200, measured")
    left.plot(report.index, report, "s", color=plots.COLOURS[1], label="report M's GPU")
    left.plot(batch, 100 * batch / (batch + half), "--", color=plots.COLOURS[1],
              label=f"formula: $b / (b + {half:.0f})$")
    left.set(ylim=(0, 100), ylabel="time with a kernel running (%)")
    right.plot(gpu.index, gpu["images_per_sec"], "-o", color=plots.COLOURS[0])
    right.set(ylim=(0, None), ylabel="throughput of the H200 (images/s)")
    right.yaxis.set_major_formatter("{x:,.0f}")
    for axes in (left, right):
        _set_batch_axis(axes, list(gpu.index))
    figure.legend(loc="outside lower center", ncols=3, fontsize=9)
    return figure


def _set_batch_axis(axes: Axes, ticks: Sequence[int]) -> None:
    axes.set(xscale="log", xlabel="batch size b (images per step)")
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks], fontsize=8)
    axes.minorticks_off()


def _set_logarithmic(axes: Axes) -> None:
    """Make the vertical axis logarithmic, with ticks at 1, 2, 5, 10."""
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())
