"""Page 6: what a worker's memory holds, and which networks fit; the table of `labs sweep lab06`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from labs.pages import plots
from labs.results import noise, records, scaling

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Runs = Sequence[dict[str, Any]]
WORKERS = (1, 2, 4)
"""Numbers of workers of `memory_figure`."""


def memory_figure(program: float, model: float, images: float, limit: float, depth: int, width: int) -> Figure:
    """Draw the memory of a worker on 1, 2 and 4 workers at one global batch, and which depth and width then fit.

    Args:
        program: MiB of a worker without a model.
        model: MiB of weights, gradients and the optimizer's state.
        images: MiB of all images of a step.
        limit: MiB that a worker may use.
        depth, width: Those of the network; the memory of its images is proportional to (depth - 1) width.
    """
    figure = plots.empty(9, 3.4)
    bars, plane = figure.subplots(1, 2)
    _draw_stacks(bars, program, model, images)
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
    plots.finish(plane, title="fits below its line")
    return figure


def _draw_stacks(axes: Axes, program: float, model: float, images: float) -> None:
    places, each = range(len(WORKERS)), [images / workers for workers in WORKERS]
    parts = (("program", "0.75", program, 0.0), ("model", plots.COLOURS[1], model, program),
             ("images", plots.COLOURS[0], each, program + model))
    for name, colour, heights, bottom in parts:
        axes.bar(places, heights, 0.6, bottom, color=colour, edgecolor="black", linewidth=0.8, label=name)
    axes.set_xticks(places, [str(workers) for workers in WORKERS])


def peak_figure(batches: Sequence[int], peaks: Sequence[float], line: tuple[float, float], by_hand: float) -> Figure:
    """Draw the peaks of trials over the batch, the line through them, and the activations computed by hand.

    Args:
        batches: Images of each trial's step.
        peaks: Peak memory of each, in MiB.
        line: MiB per image, and MiB without images.
        by_hand: MiB of one image's activations.
    """
    axes, images = plots.empty(7.5, 3.2).subplots(), np.array([0, max(batches)])
    axes.plot(images, line[1] + line[0] * images, color="0.3", label=f"line: {line[1]:.0f} + {line[0]:.2f} b")
    axes.fill_between(images, line[1], line[1] + by_hand * images, color=plots.COLOURS[0], alpha=0.25, linewidth=0,
                      label=f"activations by hand: {by_hand:.2f} b")
    axes.plot(batches, peaks, "o", color=plots.COLOURS[0], label="measured peak")
    axes.set(xlabel="images per worker and step b", ylabel="peak memory (MiB)", ylim=(0, None))
    return plots.finish(axes)


def compare_workers(runs: Runs) -> pd.DataFrame:
    """Return time, speedup and PSNR of one worker and two per depth and width, at one global batch.

    The columns are `T1` and `T2`, seconds per epoch; `speedup`, `speedup_low` and `speedup_high`; `psnr`, that of one
    worker; and `apart`, the largest difference in PSNR of one worker and two with one seed. All but the last are
    medians over the seeds.
    """
    frame, cell = records.table(runs), ["depth", "width"]
    table = scaling.speedups(frame, by=cell, scaling="strong").query("size == 2").set_index(cell)
    table = table[["speedup", "speedup_low", "speedup_high"]].astype(float)
    seconds = frame.groupby([*cell, "size"])["seconds_per_epoch"].median().unstack()
    table["T1"], table["T2"] = seconds[1], seconds[2]
    psnr = frame.pivot(index=[*cell, "seed"], columns="size", values="test_psnr")
    table["psnr"] = psnr[1].groupby(cell).median()
    table["apart"] = (psnr[2] - psnr[1]).abs().groupby(cell).max()
    return table


def heatmaps(table: pd.DataFrame) -> Figure:
    """Draw time, speedup and PSNR of `compare_workers` over depth and width, a panel each."""
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


def remedy_table(runs: Runs, names: Mapping[str, str]) -> pd.DataFrame:
    """Return seconds per epoch and change in PSNR of each remedy, as text: mean over the seeds and its 95 % interval.

    Args:
        runs: Records of one worker, with one network and batch, but for the remedies and a smaller batch.
        names: What to call each remedy; "smaller" is any batch below the largest.
    """
    import pandas as pd

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


def summary(runs: Runs) -> str:
    """Return a row per run of lab 6's sweeps as text: what it trained, whether it fits, and the largest that fits."""
    columns = ["search", "depth", "width", "remedy", "batch_size", "size", "fits", "peak_mb", "seconds_per_epoch",
               "test_psnr", "largest_batch_size", "largest_width", "largest_depth"]
    frame = records.table(runs).sort_values(["search", "remedy", "size", "depth", "width"])
    return frame[[name for name in columns if name in frame]].round(2).to_string(index=False, na_rep="")
