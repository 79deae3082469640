"""Plots that several pages or the report draw: labelled, with units."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from labs.results import ledger as time_ledger
from labs.results.curves import BESIDE, COLOURS, RANK_COLOURS, curves, empty, save  # noqa: F401 - for the pages.
from labs.results.tables import heading
from labs.run.text import plural, printable

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike


def scaling(frame: pd.DataFrame, by: Sequence[str]) -> Figure:
    """Draw speedup and scaling efficiency over the workers side by side, with 95 % intervals and the ideal line.

    Args:
        frame: From `scaling.speedups`.
        by: The columns whose values distinguish the lines.
    """
    figure = empty(10, 3.5)
    axes = figure.subplots(1, 2)
    sizes = sorted(set(frame["size"]))
    panels = (("speedup", "speedup: throughput(n) / throughput(1)", sizes),
              ("scaling_efficiency", "scaling efficiency: speedup / n", [1] * len(sizes)))
    for panel, (value, title, ideal) in zip(axes, panels, strict=True):
        for number, (name, rows) in enumerate(_lines(frame, by)):
            line = rows.dropna(subset=[value]).sort_values("size")
            if len(line):
                panel.errorbar(line["size"], line[value], _errors(line, value), fmt="-o", capsize=3, label=name,
                               color=COLOURS[number % len(COLOURS)])
        panel.plot(sizes, ideal, ":", color="0.4", label="ideal", zorder=1)
        panel.set(xlabel="workers", ylabel=title, xticks=sizes)
        panel.margins(y=0.08)
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
    return finish(axes[1])


def speedup_panels(panels: Mapping[str, Mapping[str, pd.DataFrame]], cores: int) -> Figure:
    """Draw speedups over the number of workers, a panel each, with 95 % intervals, the ideal, and the cores as a limit.

    Args:
        panels: By title, the lines of a panel by their label: columns `size`, `speedup` and, if known, its `_low` and
            `_high`, without which a line is hollow and dashed.
        cores: More workers than these share them; that part is shaded.
    """
    figure = empty(9, 3.3)
    row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (title, lines) in zip(row, panels.items(), strict=True):
        sizes = sorted({size for line in lines.values() for size in line["size"]})
        axes.plot(sizes, sizes, ":", color="0.4", label="ideal")
        for number, ((label, line), colour) in enumerate(zip(lines.items(), COLOURS, strict=False)):
            errors = _errors(line, "speedup")
            axes.errorbar(line["size"] + 0.06 * number, line["speedup"], errors, fmt="-o" if errors else "--s",
                          markerfacecolor=colour if errors else "none", color=colour, capsize=3, label=label)
        axes.axvspan(cores + 0.5, max(sizes) + 0.4, color="0.93", zorder=0)
        axes.set(title=title, xlabel="workers N", xticks=sizes, ylim=(0, max(sizes) + 0.2))
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, loc="upper left")
    figure.axes[0].set_ylabel("speedup S = T(1) / T(N)")
    return figure


def ledger(frame: pd.DataFrame, by: Sequence[str] = ("batch_size", "size")) -> Figure:
    """Draw the seconds of one epoch as stacked bars, a colour for each entry of the ledger; a dash is the wall time.

    Args:
        frame: Runs with a ledger, from `records.load`. Rows that are equal in `by` are one bar, their mean.
        by: The columns whose values distinguish the bars.
    """
    by = [column for column in by if column in frame]
    columns = list(time_ledger.COLUMNS)
    bars = frame.dropna(subset=columns).groupby(by, dropna=False)[columns].mean()  # Medians would not sum.
    names = ["\n".join(map(_label, by, key)) for key in bars.index.to_frame().itertuples(index=False)]
    axes = empty(max(4.5, 2 + 0.95 * len(bars)), 3.6).subplots()
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
    """Draw the contours of a loss with two weights, and on them paths of SGD steps; a panel per title.

    Later paths have thinner lines, so that all colours can be seen where they coincide.

    Args:
        paths: By title, the weights of each path: [steps + 1, 2], the first row before step 1.
        loss: Returns the losses of arrays of both weights.
        labels: Of the paths.
    """
    panels = {title: [np.asarray(path, float) for path in several] for title, several in paths.items()}
    points = np.concatenate([path for several in panels.values() for path in several])
    low, high = points.min(axis=0), points.max(axis=0)
    margin = 0.2 * np.maximum(high - low, 1e-6 + 0.3 * (high - low).max())
    grid = np.meshgrid(*(np.linspace(low[axis] - margin[axis], high[axis] + margin[axis], 160) for axis in (0, 1)))
    heights = loss(*grid)
    figure = empty(9, 3.7)
    row = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    for axes, (title, several) in zip(row, panels.items(), strict=True):
        axes.contour(*grid, heights, levels=10, colors="0.72", linewidths=0.9)
        _draw_paths(axes, several, labels)
        apart = max(float(np.linalg.norm(one[-1] - other[-1])) for one in several for other in several)
        steps = plural(max(len(path) for path in several) - 1, "step")
        axes.set_title(f"{title}\nafter {steps} {apart:.2g} apart", fontsize=11)
        axes.set_xlabel("weight $w_0$")
    row[0].set_ylabel("weight $w_1$")
    row[-1].legend(fontsize=9, **BESIDE)
    figure.set_layout_engine("constrained", w_pad=0.1, h_pad=0.1)  # In inches.
    return figure


def _draw_paths(axes: Axes, paths: Sequence[np.ndarray], labels: Sequence[str]) -> None:
    for number, (path, label) in enumerate(zip(paths, labels, strict=True)):
        later = len(paths) - 1 - number
        axes.plot(*path.T, "-o", color=RANK_COLOURS[number], linewidth=1.5 + 2.5 * later, markersize=3, label=label)
        axes.plot(*path[-1], "s", color=RANK_COLOURS[number], markersize=8 + 4 * later, markerfacecolor="none",
                  markeredgewidth=1.8)
    for start in np.unique([path[0] for path in paths], axis=0):
        axes.annotate("start", start, xytext=(8, 8), textcoords="offset points", fontsize=9)


def pictures(images: Sequence[np.ndarray], titles: Sequence[str], height: float) -> Figure:
    """Draw images, uint8 [height, width, 3] each, side by side; `height` is the figure's, in inches."""
    figure = empty(9, height)
    for axes, image, title in zip(figure.subplots(1, len(images), squeeze=False)[0], images, titles, strict=True):
        axes.imshow(image)
        axes.set_title(title, fontsize=9)
        axes.axis("off")
    return figure


def finish(axes: Axes, **legend: Any) -> Figure:
    """Add a grid and a legend with these properties, and return the figure."""
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, **BESIDE | legend)
    return axes.figure  # type: ignore[return-value]  # Never a SubFigure: no lab draws on one.


def _lines(frame: pd.DataFrame, by: Sequence[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the rows of each combination of values of `by`, with its label."""
    columns = [column for column in by if column in frame]
    if not columns:
        yield "measured", frame
        return
    for values, rows in frame.groupby(columns, dropna=False, sort=True, observed=True):
        yield ", ".join(map(_label, columns, values)), rows


def _label(column: str, value: Any) -> str:
    """Return a value's text in a legend: a word alone, a number with its column."""
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    text = value if isinstance(value, str) else f"{heading(column)} {number}"
    return printable(text).replace("$", r"\$")  # A name in a record is neither an escape sequence nor a formula.


def _errors(rows: pd.DataFrame, value: str):
    """Return the lengths of the error bars of a column that has `_low` and `_high` beside it; 0 where they are NaN."""
    if f"{value}_low" not in rows:
        return None
    low, high = rows[value] - rows[f"{value}_low"], rows[f"{value}_high"] - rows[value]
    return [side.fillna(0).clip(lower=0).to_numpy(float) for side in (low, high)]
