"""Page 6: what a worker's memory holds, and which networks fit; the table of `labs sweep lab06`."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from labs.pages import plots
from labs.pages.plots import Runs
from labs.results import noise, records, scaling


def memory_figure(program: float, model: float, images: float, limit: float, depth: int, width: int) -> Figure:
    """Draw a worker's memory (MiB) on 1, 2 and 4 workers at one global batch, and which depth and width then fit.

    `images`, that of a step's images, is proportional to (depth - 1) width.
    """
    sizes, (bars, plane) = (1, 2, 4), plots.panels(2, 3.4)
    channels, bottom = np.linspace(1, 4 * width, 200), np.zeros(3)
    for name, colour, mib in (("program", "0.75", [program] * 3), ("model", plots.COLOURS[1], [model] * 3),
                              ("images", plots.COLOURS[0], [images / workers for workers in sizes])):
        bars.bar(range(3), mib, 0.6, bottom, color=colour, label=name, **plots.EDGE)
        bottom += mib
    bars.axhline(limit, color="0.2", linestyle="--")
    bars.annotate("limit", (1, limit), (-3, 3), ("axes fraction", "data"), "offset points", fontsize=9, ha="right")
    bars.set_xticks(range(3), [str(workers) for workers in sizes])
    bars.set(ylabel="memory of one worker (MiB)", xlabel="workers N, at one global batch",
             ylim=(0, 1.25 * max(limit, program + model + images)))
    bars.legend(fontsize=8, loc="upper right", ncols=3)
    for number, workers in enumerate(sizes):
        most = (depth - 1) * width * (limit - program - model) * workers / images
        plane.plot(channels, 1 + most / channels, color=plots.COLOURS[number],
                   label=f"N = {workers}: (D - 1) W = {most:.0f}")
    plane.plot(width, depth, "ks", label=f"D = {depth}, W = {width}")
    plane.set(xlabel="width W (channels)", ylabel="depth D (layers)", xlim=(0, 4 * width), ylim=(0, 3 * depth))
    return plots.finish(plane, title="fits below its line")


def peak_figure(batches: Sequence[int], peaks: Sequence[float], line: tuple[float, float], by_hand: float) -> Figure:
    """Draw the peaks (MiB) of trials over the batch, a line (MiB per image; without images), and the part by hand."""
    (axes,), images = plots.panels(1, 3.2, 7.5), np.array([0, max(batches)])
    axes.plot(images, line[1] + line[0] * images, color="0.3", label=f"line: {line[1]:.0f} + {line[0]:.2f} b")
    axes.fill_between(images, line[1], line[1] + by_hand * images, color=plots.COLOURS[0], alpha=0.25, linewidth=0,
                      label=f"activations by hand: {by_hand:.2f} b")
    axes.plot(batches, peaks, "o", color=plots.COLOURS[0], label="measured peak")
    axes.set(xlabel="images per worker and step b", ylabel="peak memory (MiB)", ylim=(0, None))
    return plots.finish(axes)


def compare_workers(runs: Runs) -> pd.DataFrame:
    """Return time, speedup and PSNR of one worker and two by depth and width; `apart`: their PSNRs' difference."""
    frame, cell = records.table(runs), ["depth", "width"]
    table = scaling.speedups(frame, by=cell, scaling="strong").query("size == 2").set_index(cell)
    table = table[["speedup", "speedup_low", "speedup_high"]].astype(float)
    seconds = frame.groupby([*cell, "size"])["seconds_per_epoch"].median().unstack()
    table["T1"], table["T2"] = seconds[1], seconds[2]
    psnr = frame.pivot(index=[*cell, "seed"], columns="size", values="test_psnr")
    table["psnr"] = psnr[1].groupby(cell).median()
    table["apart"] = (psnr[2] - psnr[1]).abs().groupby(cell).max()
    return table


def compare_speedups(runs: Runs, one: tuple[int, int], other: tuple[int, int]) -> noise.Comparison:
    """Compare the speedups of two workers at two depths and widths, within seeds: S(one) / S(other)."""
    speed = records.table(runs).pivot(index="seed", columns=["depth", "width", "size"], values="images_per_sec")
    return noise.compare(*(speed[*cell, 2] / speed[*cell, 1] for cell in (one, other)), ratio=True)


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
        axes.set_title(title, fontsize=10)
        axes.set(xlabel="width W (channels)", ylabel="depth D (layers)")
        axes.set_xticks(range(values.shape[1]), values.columns)
        axes.set_yticks(range(values.shape[0]), values.index)
    return figure


def remedy_table(runs: Runs, names: Mapping[str, str]) -> pd.DataFrame:
    """Return seconds per epoch and change in PSNR of each remedy, as text; "smaller" is the smaller batch."""
    frame = records.table(runs)
    smaller = frame["batch_size"] < frame["batch_size"].max()
    frame["way"] = pd.Categorical(frame["remedy"].mask(smaller, "smaller").map(names), list(names.values()))
    frame["gain"] = frame["test_psnr"] - frame["seed"].map(frame[frame["way"] == "none"].set_index("seed")["test_psnr"])

    def text(values: pd.Series) -> str:
        low, high = noise.mean_interval(values)
        return f"{values.mean():.2f}" + f" ({low:.2f} to {high:.2f})" * (len(values) > 1)

    ways = frame.groupby("way", observed=True)
    return pd.DataFrame({"s per epoch": ways["seconds_per_epoch"].agg(text),
                         "PSNR - that of none (dB)": ways["gain"].agg(text)}).rename_axis(None)


def summary(runs: Runs) -> str:
    """Return a row per run of lab 6's sweeps as text: what it trained, whether it fits, and the largest that fits."""
    columns = ["search", "depth", "width", "remedy", "batch_size", "size", "fits", "peak_mb", "seconds_per_epoch",
               "test_psnr", "largest_batch_size", "largest_width", "largest_depth"]
    frame = records.table(runs).sort_values(["search", "remedy", "size", "depth", "width"])
    return frame[[name for name in columns if name in frame]].round(2).to_string(index=False, na_rep="")
