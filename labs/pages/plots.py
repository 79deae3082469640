"""Plots of several runs: labelled, with units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from labs.results import ledger as time_ledger
from labs.results.curves import BESIDE, COLOURS, RANK_COLOURS, curves, empty, save  # noqa: F401 - for the pages.
from labs.results.tables import figure as figure_of
from labs.results.tables import heading
from labs.run.text import printable

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from labs.pages.step_cost import StepCost


def seed_bands(runs: Mapping[str, Sequence[Mapping[str, Any]]],
               metrics: Sequence[str] = ("loss", "val_accuracy")) -> Figure:
    """Draw metrics over the epochs: a setting's mean over its seeds, in a band from the lowest to the highest.

    Args:
        runs: The records of each setting, one per seed, by its label.
        metrics: Columns of the history, one panel each.
    """
    units = {"loss": "training loss (nats)", "val_loss": "validation loss (nats)",
             "accuracy": "training accuracy (share right)", "val_accuracy": "validation accuracy (share right)"}
    figure = empty(9, 3.9)
    for axes, metric in zip(figure.subplots(1, len(metrics), squeeze=False)[0], metrics, strict=True):
        for (label, records), colour in zip(runs.items(), COLOURS, strict=False):
            values = np.array([[row[metric] for row in record["history"]] for record in records], float)
            epochs = [row["epoch"] for row in records[0]["history"]]
            axes.plot(epochs, values.mean(axis=0), marker="o", markersize=3, color=colour, label=label)
            axes.fill_between(epochs, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.2, linewidth=0)
        axes.set(xlabel="epoch", ylabel=units.get(metric, metric))
        if metric.endswith("accuracy"):
            axes.set_ylim(0, 1)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9)
    return figure


def speedup(frame: pd.DataFrame, by: str | Sequence[str] = "batch_size", reference: pd.DataFrame | None = None,
            axes: Axes | None = None) -> Figure:
    """Draw the speedup over the number of workers, one line per value of `by`, with 95 % intervals and the ideal line.

    Args:
        frame: From `scaling.speedups`.
        by: The column or columns whose values distinguish the lines.
        reference: Speedups of a course report (columns `size`, `speedup` and those of `by`), hollow and dashed.
        axes: The axes to draw on; by default those of a new figure.
    """
    return _scaling(frame, by, "speedup", "speedup: throughput(n) / throughput(1)", reference, axes)


def scaling(frame: pd.DataFrame, by: str | Sequence[str] = "batch_size") -> Figure:
    """Draw speedup and scaling efficiency, speedup / workers, side by side; arguments as in `speedup`."""
    figure = empty(10, 3.5)
    left, right = figure.subplots(1, 2)
    speedup(frame, by, axes=left)
    left.get_legend().remove()
    return _scaling(frame, by, "scaling_efficiency", "scaling efficiency: speedup / n", None, right)


def _scaling(frame, by, value, title, reference, axes) -> Figure:
    axes = axes or empty(6.6, 3.6).subplots()
    by = [by] if isinstance(by, str) else list(by)
    measured = dict(_lines(frame, by))
    reported = dict(_lines(reference, by)) if reference is not None else {}
    # By label, so that measured and reported lines of one batch size have the same colour.
    colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate({**measured, **reported})}
    for name, line in measured.items():
        line = line.dropna(subset=[value]).sort_values("size")
        if len(line):
            axes.errorbar(line["size"], line[value], _errors(line, value), fmt="-o", color=colours[name], capsize=3,
                          label=name)
    for name, line in reported.items():
        line = line.dropna(subset=[value]).sort_values("size")
        axes.plot(line["size"], line[value], "--s", color=colours[name], markerfacecolor="none",
                  alpha=0.6, label=f"report, {name}".removesuffix(", measured"))
    sizes = sorted({*frame["size"], *(reference["size"] if reference is not None else ())})
    ideal = sizes if value == "speedup" else [1] * len(sizes)
    axes.plot(sizes, ideal, ":", color="0.4", label="ideal", zorder=1)
    axes.set(xlabel="workers", ylabel=title, xticks=sizes)
    axes.margins(y=0.08)
    axes.set_ylim(bottom=0)
    return finished(axes)


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


def _lines(frame: pd.DataFrame, by: Sequence[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the rows of each combination of values of `by`, with its label."""
    columns = [column for column in by if column in frame]
    if not columns:
        yield "measured", frame
        return
    for values, rows in frame.groupby(columns, dropna=False, sort=True, observed=True):
        yield ", ".join(map(label_of, columns, values)), rows


def label_of(column: str, value: Any) -> str:
    """Return a value's text in a legend: a word alone, a number with its column."""
    text = value if isinstance(value, str) else f"{heading(column)} {_plain(value)}"
    return printable(text).replace("$", r"\$")  # A name in a record is neither an escape sequence nor a formula.


def _plain(value: Any) -> str:
    """Return a value without a needless fraction."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def ledger(frame: pd.DataFrame, by: Sequence[str] = ("batch_size", "size"), axes: Axes | None = None) -> Figure:
    """Draw the seconds of one epoch as stacked bars, a colour for each entry of the ledger; a dash is the wall time.

    Args:
        frame: Runs with a ledger, from `records.load`: columns ledger_wall_seconds, ledger_input_seconds and so on.
            Rows that are equal in `by` are one bar, their mean.
        by: The columns whose values distinguish the bars.
        axes: The axes to draw on; by default those of a new figure.
    """
    by = [column for column in by if column in frame]
    columns = list(time_ledger.COLUMNS)
    bars = frame.dropna(subset=columns).groupby(by, dropna=False)[columns].mean()  # Medians would not sum.
    names = ["\n".join(map(label_of, by, key)) for key in bars.index.to_frame().itertuples(index=False)]
    axes = axes or empty(max(4.5, 2 + 0.95 * len(bars)), 3.6).subplots()
    above, below = np.zeros(len(bars)), np.zeros(len(bars))  # A difference of two measurements can be below zero.
    colours = (COLOURS[5], COLOURS[0], COLOURS[1], COLOURS[4], "0.73")
    for entry, colour in zip(time_ledger.ENTRIES, colours, strict=True):
        height = bars[f"ledger_{entry}_seconds"].to_numpy(float)
        axes.bar(range(len(bars)), height, 0.7, np.where(height < 0, below, above), color=colour, label=entry)
        above, below = above + height.clip(min=0), below + height.clip(max=0)
    axes.plot(range(len(bars)), bars["ledger_wall_seconds"], "k_", markersize=14, label="wall time")
    axes.set_xticks(range(len(bars)), names, fontsize=8)
    axes.set(ylabel="seconds of one epoch")
    return finished(axes)


def step_times(turns: pd.DataFrame, cost: StepCost) -> Figure:
    """Draw one worker's measured steps over the batch size, with the fitted cost: their time, and their throughput.

    Args:
        turns: Columns `batch_size` (images) and `seconds` of a step: a row per turn and batch size.
        cost: From `step_cost.fit`.
    """
    figure = empty(9, 3.4)
    left, right = figure.subplots(1, 2)
    measured, ticks = turns["batch_size"], sorted(set(turns["batch_size"]))
    batch = np.geomspace(ticks[0], ticks[-1])
    fixed, fastest = 1e3 * cost.fixed.value, 1 / cost.per_image.value
    for axes, dots, curve, limit, name in (
            (left, 1e3 * turns["seconds"], 1e3 * cost.seconds(batch), fixed, f"$a$ = {fixed:.2g} ms"),
            (right, measured / turns["seconds"], batch / cost.seconds(batch), fastest,
             f"$1/c$ = {fastest:,.0f} images/s")):
        axes.plot(measured, dots, "o", color=COLOURS[0], alpha=0.5, label="one turn")
        axes.plot(batch, curve, color="0.3", label="fit: $t(b) = a + c\\,b$")
        if limit > 0:  # The fit of a disturbed run may have a < 0, which a logarithmic axis cannot show.
            axes.axhline(limit, color="0.3", linestyle=":", label="bound: $t > a$, throughput $< 1/c$")
            axes.annotate(name, (1, limit), (4, 0), ("axes fraction", "data"), "offset points", va="center", fontsize=9)
        _batch_axis(axes, ticks)
    left.set(ylabel="time of a step (ms)")
    _logarithmic(left)
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
    figure = empty(9, 3.6)
    left, right = figure.subplots(1, 2)
    batch = np.geomspace(gpu.index[0], gpu.index[-1])
    left.plot(gpu.index, gpu["gpu0_percent"], "-o", color=COLOURS[0], label="H200, measured")
    left.plot(report.index, report, "s", color=COLOURS[1], label="report M's GPU")
    left.plot(batch, 100 * batch / (batch + half), "--", color=COLOURS[1], label=f"formula: $b / (b + {half:.0f})$")
    left.set(ylim=(0, 100), ylabel="time with a kernel running (%)")
    right.plot(gpu.index, gpu["images_per_sec"], "-o", color=COLOURS[0])
    right.set(ylim=(0, None), ylabel="throughput of the H200 (images/s)")
    right.yaxis.set_major_formatter("{x:,.0f}")
    for axes in (left, right):
        _batch_axis(axes, list(gpu.index))
    figure.legend(loc="outside lower center", ncols=3, fontsize=9)
    return figure


def _batch_axis(axes: Axes, ticks: Sequence[int]) -> None:
    axes.set(xscale="log", xlabel="batch size b (images per step)")
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks], fontsize=8)
    axes.minorticks_off()


def _logarithmic(axes: Axes) -> None:
    """Make the vertical axis logarithmic, with ticks at 1, 2, 5, 10."""
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())


def pictures(images: Sequence[np.ndarray], titles: Sequence[str], height: float) -> Figure:
    """Draw images side by side.

    Args:
        images: uint8 [height, width, 3] each.
        titles: One for each.
        height: Of the figure, in inches.
    """
    figure = empty(9, height)
    for axes, image, title in zip(figure.subplots(1, len(images), squeeze=False)[0], images, titles, strict=True):
        axes.imshow(image)
        axes.set_title(title, fontsize=9)
        axes.axis("off")
    return figure


def heatmaps(title: str, panels: dict[str, tuple[pd.DataFrame, pd.DataFrame]]) -> Figure:
    """Draw tables side by side with one colour scale: each cell shows its value, or is hatched if it does not fit.

    Args:
        title: What the values are, with their unit.
        panels: By name, values and whether they fit, with the same rows and columns; NaN where nothing was run.
    """
    figure = empty(1 + 3.6 * len(panels), 3.2)
    kept = [values.to_numpy(float)[fits.to_numpy(float) == 1] for values, fits in panels.values()]
    scale = np.concatenate([*kept, [np.nan]])
    low, high = (np.nanmin(scale), np.nanmax(scale)) if np.isfinite(scale).any() else (0, 1)
    row_of_axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (name, (values, fits)) in zip(row_of_axes, panels.items(), strict=True):
        fitting = fits.to_numpy(float)
        shown = np.where(fitting == 1, values.to_numpy(float), np.nan)
        image = axes.imshow(shown, cmap="cividis", vmin=low, vmax=high, origin="lower", aspect="auto")
        for (row, column), value in np.ndenumerate(shown):
            if fitting[row, column] == 0:
                _hatched(axes, row, column)
            else:
                text = figure_of(value) if value == value else "no run"
                axes.text(column, row, text, ha="center", va="center", color="w" if value <= (low + high) / 2 else "k")
        axes.set(title=name, xlabel=heading(values.columns.name), ylabel=heading(values.index.name))
        axes.set_xticks(range(values.shape[1]), values.columns)
        axes.set_yticks(range(values.shape[0]), values.index)
    figure.colorbar(image, ax=figure.axes, label=title)
    return figure


def _hatched(axes: Axes, row: int, column: int) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor="0.92", edgecolor="0.6", hatch="//"))
    axes.text(column, row, "does not\nfit", ha="center", va="center", fontsize=8)


def _errors(rows: pd.DataFrame, value: str):
    """Return the lengths of the error bars of a column that has `_low` and `_high` beside it; 0 where they are NaN."""
    if f"{value}_low" not in rows:
        return None
    low, high = rows[value] - rows[f"{value}_low"], rows[f"{value}_high"] - rows[value]
    return [side.fillna(0).clip(lower=0).to_numpy(float) for side in (low, high)]


def finished(axes: Axes, **legend: Any) -> Figure:
    """Add a grid and a legend with these properties, and return the figure."""
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, **BESIDE | legend)
    return axes.figure  # type: ignore[return-value]  # Never a SubFigure: no lab draws on one.
