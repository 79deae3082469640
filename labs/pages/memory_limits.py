"""What a worker must hold, and which networks fit: drawings, heatmaps over depth and width, remedies, the largest."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from labs.run.text import plural

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLES = {"peak_mb": "peak memory of a worker (MiB)", "seconds_per_epoch": "seconds per epoch",
          "test_psnr": "PSNR (dB)"}
"""The heatmaps' titles, by the column that they show."""


WORKERS = (1, 2, 4)
"""Numbers of workers of the drawing."""


def held(program: float, model: float, images: float, limit: float, depth: int, width: int) -> Figure:
    """Draw what a worker holds on 1, 2 and 4 workers at one global batch, and which depth and width then fit.

    Args:
        program: MiB that a worker holds without a model.
        model: MiB of weights, gradients and the optimizer's state.
        images: MiB of all images of a step.
        limit: MiB that a worker may hold.
        depth, width: Those of the network; the memory of its images is proportional to (depth - 1) width.
    """
    from labs.pages import plots

    figure = plots.empty(9, 3.4)
    bars, plane = figure.subplots(1, 2)
    _stacks(bars, program, model, images)
    bars.axhline(limit, color="0.2", linestyle="--")
    bars.annotate("limit", (1, limit), (-3, 3), ("axes fraction", "data"), "offset points", fontsize=9, ha="right")
    highest = max(limit, program + model + images)
    bars.set(ylabel="memory of one worker (MiB)", xlabel="workers N, at one global batch", ylim=(0, 1.25 * highest))
    bars.legend(fontsize=8, loc="upper right", ncols=3)
    plane.set(xlabel="width W (channels)", ylabel="depth D (layers)", xlim=(0, 4 * width), ylim=(0, 3 * depth))
    channels = np.linspace(1, 4 * width, 200)
    for number, workers in enumerate(WORKERS):
        most = (depth - 1) * width * (limit - program - model) * workers / images
        plane.plot(channels, 1 + most / channels, color=plots.COLOURS[number],
                   label=f"N = {workers}: (D - 1) W = {most:.0f}")
    plane.plot(width, depth, "ks", label=f"D = {depth}, W = {width}")
    plots.finished(plane, title="fits below its line")
    return figure


def _stacks(axes: Axes, program: float, model: float, images: float) -> None:
    from labs.pages import plots

    names = {"program": "0.75", "model": plots.COLOURS[1], "images": plots.COLOURS[0]}
    for place, workers in enumerate(WORKERS):
        bottom = 0.0
        for (name, colour), height in zip(names.items(), (program, model, images / workers), strict=True):
            axes.bar(place, height, 0.6, bottom, color=colour, edgecolor="black", linewidth=0.8,
                     label=name if place == 0 else None)
            bottom += height
    axes.set_xticks(range(len(WORKERS)), [str(workers) for workers in WORKERS])


def peaks(batches: Sequence[int], measured: Sequence[float], line: tuple[float, float], by_hand: float) -> Figure:
    """Draw the peaks of trials over the batch, the line through them, and the activations computed by hand.

    Args:
        batches: Images of each trial's step.
        measured: Peak memory of each, in MiB.
        line: MiB per image, and MiB without images.
        by_hand: MiB of one image's activations.
    """
    from labs.pages import plots

    figure = plots.empty(7.5, 3.2)
    axes = figure.subplots()
    images = np.array([0, max(batches)])
    axes.plot(images, line[1] + line[0] * images, color="0.3", label=f"line: {line[1]:.0f} + {line[0]:.2f} b")
    axes.fill_between(images, line[1], line[1] + by_hand * images, color=plots.COLOURS[0], alpha=0.25, linewidth=0,
                      label=f"activations by hand: {by_hand:.2f} b")
    axes.plot(batches, measured, "o", color=plots.COLOURS[0], label="measured peak")
    axes.set(xlabel="images per worker and step b", ylabel="peak memory (MiB)", ylim=(0, None))
    return plots.finished(axes)


def one_and_two(runs: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Return time, speedup and PSNR of one worker and two per depth and width, at one global batch.

    The columns are `T1` and `T2`, seconds per epoch; `speedup`, `speedup_low` and `speedup_high`; `psnr`, that of one
    worker; and `apart`, the largest difference in PSNR of one worker and two with one seed. All but the last are
    medians over the seeds.

    Args:
        runs: Records of one worker and of two, with the same seeds.
    """
    from labs.results import records, scaling

    frame, cell = records.table(runs), ["depth", "width"]
    table = scaling.speedups(frame, by=cell, scaling="strong").query("size == 2").set_index(cell)
    table = table[["speedup", "speedup_low", "speedup_high"]].astype(float)
    seconds = frame.groupby([*cell, "size"])["seconds_per_epoch"].median().unstack()
    table["T1"], table["T2"] = seconds[1], seconds[2]
    psnr = frame.pivot(index=[*cell, "seed"], columns="size", values="test_psnr")
    table["psnr"] = psnr[1].groupby(cell).median()
    table["apart"] = (psnr[2] - psnr[1]).abs().groupby(cell).max()
    return table


def grid(table: pd.DataFrame) -> Figure:
    """Draw time, speedup and PSNR over depth and width, a panel each.

    Args:
        table: From `one_and_two`.
    """
    from labs.pages import plots

    figure = plots.empty(9, 2.9)
    panels = {"T1": "T(1): seconds per epoch", "speedup": "S(2) = T(1) / T(2)", "psnr": "PSNR on one worker (dB)"}
    for axes, (column, title) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
        values = table[column].unstack()
        axes.imshow(values, cmap="cividis", origin="lower", aspect="auto")
        for (row, place), value in np.ndenumerate(values.to_numpy()):
            dark = value <= (values.min(axis=None) + values.max(axis=None)) / 2
            axes.text(place, row, f"{value:.2f}", ha="center", va="center", color="w" if dark else "k")
        axes.set(title=title, xlabel="width W (channels)", ylabel="depth D (layers)")
        axes.title.set_fontsize(10)
        axes.set_xticks(range(values.shape[1]), values.columns)
        axes.set_yticks(range(values.shape[0]), values.index)
    return figure


def remedies(runs: Sequence[dict[str, Any]], names: Mapping[str, str]) -> pd.DataFrame:
    """Return seconds per epoch and change in PSNR of each remedy, as text: mean over the seeds and its 95 % interval.

    Args:
        runs: Records of one worker, with one network and batch, but for the remedies and a smaller batch.
        names: What to call each remedy; "smaller" is any batch below the largest.
    """
    import pandas as pd

    from labs.results import noise, records

    frame = records.table(runs)
    smaller = frame["batch_size"] < frame["batch_size"].max()
    frame["way"] = pd.Categorical(frame["remedy"].mask(smaller, "smaller").map(names), list(names.values()))
    frame["gain"] = frame["test_psnr"] - frame["seed"].map(frame[frame["way"] == "none"].set_index("seed")["test_psnr"])
    columns = {"s per epoch": "seconds_per_epoch", "PSNR - that of none (dB)": "gain"}

    def text(values: pd.Series) -> str:
        low, high = noise.mean_interval(values)
        return f"{values.mean():.2f}" + f" ({low:.2f} to {high:.2f})" * (len(values) > 1)

    return pd.DataFrame({title: frame.groupby("way", observed=True)[value].agg(text)
                         for title, value in columns.items()}).rename_axis(None)


def summary(runs: Sequence[dict[str, Any]]) -> str:
    """Return the results of lab 6's sweeps as text: heatmaps in figures, the remedies, and the largest that fits.

    Args:
        runs: Records of lab 6.
    """
    from labs.results import records

    frame = records.table(runs)
    return "\n\n".join([*_grids(frame), *_remedies(frame), *_limits(frame)])


def figures(runs: Sequence[dict[str, Any]]) -> Iterator[tuple[str, Figure]]:
    """Yield the heatmaps of the grid with their titles, one figure per value and one heatmap per number of workers."""
    from labs.pages import plots
    from labs.results import records

    for title, group in itertools.groupby(heatmaps(records.table(runs)), key=lambda heatmap: heatmap[0]):
        yield title, plots.heatmaps(title, {plural(size, "worker"): (table, fits) for _, size, table, fits in group})


def heatmaps(frame: pd.DataFrame) -> Iterator[tuple[str, int, pd.DataFrame, pd.DataFrame]]:
    """Yield title, number of workers, values and whether they fit, both as tables of depth x width."""
    if "search" not in frame:
        return
    frame = frame[(frame["search"] == "no") & (frame["remedy"] == "none")]
    if not len(frame):
        return
    alike = frame.groupby(["data", "image_size", "noise_level", "global_batch_size"])
    frame = max((rows for _, rows in alike), key=lambda rows: rows["depth"].nunique() * rows["width"].nunique())
    if frame["depth"].nunique() < 2 or frame["width"].nunique() < 2:
        return
    for value, title in TITLES.items():
        if value == "test_psnr" and "noisy_psnr" in frame:
            title += f"; the noisy images have {frame['noisy_psnr'].median():.2f}"
        for size, rows in frame.groupby("size"):
            table = rows.pivot_table(index="depth", columns="width", values=value, aggfunc="median", dropna=False)
            fits = rows.pivot_table(index="depth", columns="width", values="fits", aggfunc="min").reindex_like(table)
            yield title, size, table, fits


def _grids(frame: pd.DataFrame) -> Iterator[str]:
    """Yield each heatmap as a table of figures."""
    for title, size, table, fits in heatmaps(frame):
        shown = table.round(1).astype(object).mask(fits == 0, "no fit").mask(fits.isna(), "no run")
        yield f"{title}, {plural(size, 'worker')}, depth x width:\n{shown.to_string()}"


def _remedies(frame: pd.DataFrame) -> Iterator[str]:
    """Yield a table of peak, time and PSNR with each remedy, without any, and with a smaller batch."""
    runs = frame[(frame["size"] == 1) & (frame["search"] == "no")]
    remedied = runs[runs["remedy"] != "none"]
    if not len(remedied):
        return
    alike = remedied[["depth", "width", "image_size", "noise_level"]].iloc[0]
    runs = runs[(runs[alike.index] == alike).all(axis=1)].sort_values(["batch_size", "peak_mb"], ascending=False)
    columns = {"remedy": "remedy", "batch_size": "batch", "peak_mb": "peak MiB", "seconds_per_epoch": "s/epoch",
               "test_psnr": "PSNR dB", "fits": "fits"}
    table = runs[list(columns)].rename(columns=columns).round(2)
    yield f"what helps at depth {alike['depth']}, width {alike['width']}:\n{table.to_string(index=False)}"


def _limits(frame: pd.DataFrame) -> Iterator[str]:
    """Yield the largest batch, width and depth that the searches found to fit."""
    for name in ("batch_size", "width", "depth"):
        if f"largest_{name}" in frame:
            rows = frame.dropna(subset=[f"largest_{name}"]).sort_values("size")
            each = [f"{int(row[f'largest_{name}'])} on {plural(row['size'], 'worker')}" for _, row in rows.iterrows()]
            yield f"largest {name} that fits {int(rows['memory_limit_mb'].iloc[0])} MiB per worker: {', '.join(each)}"
