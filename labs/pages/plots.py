"""Plots that several pages or the report draw, and common parts: panels, logarithmic axes, error bars, legends."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from labs.results import ledger as time_ledger
from labs.results.curves import BESIDE, COLOURS, RANK_COLOURS, curves, empty, save  # noqa: F401 - for the pages.
from labs.results.tables import heading
from labs.run.errors import plural

Runs = Sequence[dict[str, Any]]
EDGE: dict[str, Any] = {"edgecolor": "black", "linewidth": 0.6}
"""The edge of a bar."""


def panels(count: int, height: float, width: float = 9, **share: Any) -> list[Axes]:
    """Return axes with a grid, side by side in a new figure; `share` is sharex or sharey."""
    row = empty(width, height).subplots(1, count, squeeze=False, **share)[0]
    for axes in row:
        axes.grid(alpha=0.3)
        axes.set_axisbelow(True)
    return list(row)


def finish(axes: Axes, **legend: Any) -> Figure:
    """Add a legend beside the axes, with these properties, and return the figure."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, **BESIDE | legend)
    return axes.figure  # type: ignore[return-value]  # Never a SubFigure: no lab draws on one.


def finish_below(axes: Axes, columns: int, handles: Sequence[Any] | None = None) -> Figure:
    """Add a legend of the axes (or of some artists) below the figure, and return it."""
    handles = axes.get_legend_handles_labels()[0] if handles is None else handles
    axes.figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=8)
    return axes.figure  # type: ignore[return-value]


def set_log_ticks(axes: Axes, name: Literal["x", "y"], ticks: Sequence[float], unit: float = 1) -> None:
    """Make an axis logarithmic, with ticks here alone, labelled with their value in this unit."""
    axes.set(**{f"{name}scale": "log"})
    axis = getattr(axes, f"{name}axis")
    axis.set_ticks(ticks, [f"{tick / unit:,g}" for tick in ticks], fontsize=8)
    axis.minorticks_off()


def error_lengths(rows: pd.DataFrame, value: str) -> list[np.ndarray]:
    """Return the lengths of the error bars of a column with `_low` and `_high` beside it; 0 where they are NaN."""
    low, high = rows[value] - rows[f"{value}_low"], rows[f"{value}_high"] - rows[value]
    return [side.fillna(0).clip(lower=0).to_numpy(float) for side in (low, high)]


def draw_runs(axes: Axes, rows: pd.DataFrame, x: str, y: str, colour: str, label: str, style: str = "-",
              beside: float = 1) -> None:
    """Draw a dot per run, hollow if the style is dashed, and a line through the means; `beside` moves the dots."""
    mean = rows.groupby(x)[y].mean()
    axes.plot(beside * rows[x], rows[y], "o", color=colour, alpha=0.6, markersize=4,
              fillstyle="none" if style == "--" else "full")
    axes.plot(mean.index, mean, style, color=colour, linewidth=2, label=label)


def scaling(frame: pd.DataFrame, by: Sequence[str]) -> Figure:
    """Draw speedups, from `scaling.speedups`, over the workers, a line for each combination of values of `by`."""
    columns = [column for column in by if column in frame]
    groups = frame.groupby(columns, dropna=False, observed=True) if columns else [((), frame)]
    return speedup_panels({"": {", ".join(map(_label, columns, values)) or "measured": rows.sort_values("size")
                                for values, rows in groups}})


def speedup_panels(panel_lines: Mapping[str, Mapping[str, pd.DataFrame]], cores: float = np.inf) -> Figure:
    """Draw speedups over the number of workers, a panel each, with 95 % intervals, the ideal, and shade above `cores`.

    A panel has lines by their label: columns `size`, `speedup` and, if known, its `_low` and `_high`.
    """
    row = panels(len(panel_lines), 3.3, sharey=True)
    for axes, (title, lines) in zip(row, panel_lines.items(), strict=True):
        sizes = sorted({size for line in lines.values() for size in line["size"]})
        axes.plot(sizes, sizes, ":", color="0.4", label="ideal")
        for number, ((label, line), colour) in enumerate(zip(lines.items(), COLOURS, strict=False)):
            errors = error_lengths(line, "speedup") if "speedup_low" in line else None
            axes.errorbar(line["size"] + 0.06 * number, line["speedup"], errors, fmt="-o" if errors else "--s",
                          markerfacecolor=colour if errors else "none", color=colour, capsize=3, label=label)
        if cores < max(sizes):
            axes.axvspan(cores + 0.5, max(sizes) + 0.4, color="0.93", zorder=0)
        axes.set(title=title, xlabel="workers N", xticks=sizes, ylim=(0, max(sizes) + 0.2))
        figure = finish(axes, loc="upper left", bbox_to_anchor=(0, 1))
    row[0].set_ylabel("speedup S = T(1) / T(N)")
    return figure


def ledger(frame: pd.DataFrame, by: Sequence[str] = ("batch_size", "size")) -> Figure:
    """Draw the seconds of an epoch as stacked bars, a colour for each entry of the ledger; a dash is the wall time.

    `frame` is from `records.load`; rows that are equal in the columns `by` are one bar, their mean.
    """
    by = [column for column in by if column in frame]
    columns = list(time_ledger.COLUMNS)
    bars = frame.dropna(subset=columns).groupby(by, dropna=False)[columns].mean()  # Medians would not sum.
    names = ["\n".join(map(_label, by, key)) for key in bars.index.to_frame().itertuples(index=False)]
    (axes,) = panels(1, 3.6, max(4.5, 2 + 0.95 * len(bars)))
    above, below = np.zeros(len(bars)), np.zeros(len(bars))  # A difference of two measurements can be below zero.
    colours = (COLOURS[5], COLOURS[0], COLOURS[1], COLOURS[4], "0.73")
    for entry, colour in zip(time_ledger.ENTRIES, colours, strict=True):
        height = bars[f"ledger_{entry}_seconds"].to_numpy(float)
        axes.bar(range(len(bars)), height, 0.7, np.where(height < 0, below, above), color=colour, label=entry)
        above, below = above + height.clip(min=0), below + height.clip(max=0)
    axes.plot(range(len(bars)), bars["ledger_wall_seconds"], "k_", markersize=14, label="wall time")
    axes.set_xticks(range(len(bars)), names, fontsize=8)
    axes.set(ylabel="seconds of one epoch")
    return finish(axes)


def loss_paths(paths: Mapping[str, Sequence[ArrayLike]], loss: Callable[[np.ndarray, np.ndarray], np.ndarray],
               labels: Sequence[str]) -> Figure:
    """Draw the contours of a loss with two weights, and on them labelled paths [steps + 1, 2]; a panel per title."""
    arrays = {title: [np.asarray(path, float) for path in several] for title, several in paths.items()}
    points = np.concatenate([path for several in arrays.values() for path in several])
    low, high = points.min(axis=0), points.max(axis=0)
    margin = 0.2 * np.maximum(high - low, 1e-6 + 0.3 * (high - low).max())
    grid = np.meshgrid(*np.linspace(low - margin, high + margin, 160).T)
    row = empty(9, 3.7).subplots(1, len(arrays), sharex=True, sharey=True, squeeze=False)[0]
    for axes, (title, several) in zip(row, arrays.items(), strict=True):
        axes.contour(*grid, loss(*grid), levels=10, colors="0.72", linewidths=0.9)
        for number, (path, label) in enumerate(zip(several, labels, strict=True)):
            # The wider the more paths come later, so that all can be seen where they coincide.
            later, colour = len(several) - 1 - number, RANK_COLOURS[number]
            axes.plot(*path.T, "-o", color=colour, linewidth=1.5 + 2.5 * later, markersize=3, label=label)
            axes.plot(*path[-1], "s", color=colour, markersize=8 + 4 * later, markerfacecolor="none",
                      markeredgewidth=1.8)
        for start in np.unique([path[0] for path in several], axis=0):
            axes.annotate("start", start, xytext=(8, 8), textcoords="offset points", fontsize=9)
        apart = max(float(np.linalg.norm(one[-1] - other[-1])) for one in several for other in several)
        steps = plural(max(map(len, several)) - 1, "step")
        axes.set(title=f"{title}\nafter {steps} {apart:.2g} apart", xlabel="weight $w_0$")
    row[0].set_ylabel("weight $w_1$")
    return finish(row[-1])


def pictures(images: Sequence[np.ndarray], titles: Sequence[str], height: float) -> Figure:
    """Draw images, uint8 [height, width, 3] each, side by side; `height` is the figure's, in inches."""
    row = panels(len(images), height)
    for axes, image, title in zip(row, images, titles, strict=True):
        axes.imshow(image)
        axes.set_title(title, fontsize=9)
        axes.axis("off")
    return finish(row[0])


def _label(column: str, value: Any) -> str:
    """Return a value's text in a legend: a word alone, a number with its column."""
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    return value if isinstance(value, str) else f"{heading(column)} {number}"
