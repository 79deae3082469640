"""Lab 11: a drawing of two nodes, figures of large batches, and of scaling over nodes whose computation is a sleep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from labs.pages import plots
from labs.results import noise
from labs.run.cluster_state import bits_per_second, format_bandwidth
from labs.run.errors import LabError
from labs.run.paths import ROOT

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Runs = Sequence[dict[str, Any]]


def layout_figure(nodes: int = 2, workers: int = 4, batch: int = 128, images: int = 60_000,
                  rate: float = 0.001) -> Figure:
    """Draw nodes as boxes of workers joined by a thin link, and below what depends on the number of all workers.

    Args:
        nodes: Number of nodes.
        workers: Workers of each.
        batch: Images per worker and step.
        images: Training images.
        rate: Learning rate of one worker.
    """
    from matplotlib.patches import Rectangle

    figure = plots.empty(9, 3.3)
    axes, wide, gap, size = figure.subplots(), workers + 0.4, 2.2, nodes * workers
    for node in range(nodes):
        left = node * (wide + gap)
        axes.add_patch(Rectangle((left, 0), wide, 1.5, facecolor="0.95", edgecolor="0.3"))
        axes.text(left + wide / 2, 1.62, f"node{node + 1}", ha="center", fontsize=10)
        for local in range(workers):
            rank = node * workers + local
            colour = plots.RANK_COLOURS[rank % len(plots.RANK_COLOURS)]
            axes.add_patch(Rectangle((left + 0.3 + local, 0.5), 0.8, 0.8, facecolor=colour, edgecolor="black"))
            axes.text(left + 0.7 + local, 0.24, f"rank {rank}\nlocal {local}", ha="center", va="center", fontsize=7.5)
        if node:
            axes.plot([left - gap, left], [0.9, 0.9], color="0.2", linewidth=1.2)
            axes.text(left - gap / 2, 1.0, "network", ha="center", fontsize=9)
            axes.text(left - gap / 2, 0.62, "slower than\na node's memory", ha="center", va="center", fontsize=7.5)
    lines = (f"hvd.size() = {nodes} x {workers} = {size} workers",
             f"global batch = {size} x {batch} = {size * batch:,} images",
             f"learning rate, linear rule = {size} x {rate:g} = {size * rate:g}",
             f"steps per epoch = {images:,} / {size * batch:,}, rounded up = {-(-images // (size * batch))}")
    for row, line in enumerate(lines):
        axes.text(nodes * (wide + gap) / 2 - gap / 2, -0.45 - 0.36 * row, line, ha="center", fontsize=10)
    axes.set(xlim=(-0.2, nodes * (wide + gap) - gap + 0.2), ylim=(-1.75, 1.95))
    axes.set_axis_off()
    return figure


def large_batches(runs: Runs) -> pd.DataFrame:
    """Return a row per run: number of workers that its batch stands for, seed, best validation and test accuracy.

    Args:
        runs: Records of lab 11's sweep "large".

    Raises:
        LabError: The runs have no such measurement.
    """
    import pandas as pd

    rows = [{"workers": run["layout"]["global_batch_size"] // run["config"]["base_batch_size"],
             "seed": run["config"]["seed"], "epochs": run["config"]["epochs"], "images": run["history"][-1]["images"],
             "test_images": run["metrics"]["test_images"], "epoch": run["metrics"]["best_epoch"],
             "validation": run["metrics"]["best_val_accuracy"], "test": run["metrics"]["test_accuracy_at_best"]}
            for run in runs if "test_accuracy_at_best" in run["metrics"]]
    if not rows:
        raise LabError("there are no such runs; make them with `labs sweep lab11 --preset laptop`")
    return pd.DataFrame(rows).sort_values(["workers", "seed"], ignore_index=True)


def batch_figure(table: pd.DataFrame) -> Figure:
    """Draw validation and test accuracy over the number of workers that a run stands for; bars are two standard errors.

    Args:
        table: From `large_batches`.
    """
    import pandas as pd

    axes = plots.empty(7.2, 3.6).subplots()
    places = {workers: place for place, workers in enumerate(sorted(table["workers"].unique()))}
    where = table["workers"].map(places)
    axes.plot(where - 0.12, table["validation"], "o", color="0.6", markersize=5, label="best validation accuracy")
    test = (where, table["test"], table["test_images"], plots.COLOURS[0], "o", "test, that epoch")
    theirs = pd.read_csv(ROOT / "data/reference/lab02_mnist_accuracy.csv").query("nodes == 2 and steps.isna()")
    theirs = theirs[theirs["workers"].isin(places)]
    report = (theirs["workers"].map(places) + 0.12, theirs["test_accuracy"], 10_000, "black", "x",
              "report M, workers as it\nstates them")
    for where, values, images, colour, marker, label in (test, report):
        axes.errorbar(where, values, 2 * np.sqrt(values * (1 - values) / images), fmt=marker, color=colour, capsize=3,
                      markersize=5, label=label)
    axes.set(xlabel="workers (global batch / 128)", ylabel="accuracy (share right)")
    axes.set_xticks(list(places.values()), [str(workers) for workers in places])
    axes.grid(alpha=0.3)
    return plots.finished(axes)


def slept(runs: Runs) -> pd.DataFrame:
    """Return a row per run, link and kind of scaling: nodes, seconds of the step, speedup over one node.

    The baseline of a speedup is the mean of one node's runs of that kind, over all links: it uses none.

    Args:
        runs: Records of lab 11's study "sleep".

    Raises:
        LabError: The runs have no such measurement.
    """
    import pandas as pd

    rows = [{"nodes": run["layout"]["size"], "seed": run["config"]["seed"], "nbytes": run["metrics"]["gradient_bytes"]}
            | row for run in runs for row in run.get("tables", {}).get("sleep", ())]
    if not rows:
        raise LabError("there are no such runs; make them on 8 nodes: `labs cluster up --nodes 8`, then `labs cluster "
                       "sweep lab11 --preset cluster --only sleep`")
    table = pd.DataFrame(rows)
    one = table[table["nodes"] == 1].groupby("kind")["step_seconds"].mean()
    images = np.where(table["kind"] == "weak", table["nodes"], 1)
    speedup = images * table["kind"].map(one) / table["step_seconds"]
    return table.assign(link=table["bandwidth"].map(bits_per_second), speedup=speedup,
                        efficiency=speedup / table["nodes"])


def speedups(table: pd.DataFrame, kind: str, nodes: int = 8) -> dict[str, tuple[float, float, float]]:
    """Return the mean speedup on some nodes with its 95 % interval over the runs, by link.

    Args:
        table: From `slept`.
        kind: "weak" or "strong".
        nodes: Number of nodes.
    """
    chosen = table[(table["kind"] == kind) & (table["nodes"] == nodes)].sort_values("link")
    return {bandwidth: (float(same["speedup"].mean()), *noise.mean_interval(same["speedup"]))
            for bandwidth, same in chosen.groupby("bandwidth", sort=False)}


def listed(speedups: Mapping[str, tuple[float, float, float]]) -> str:
    """Return speedups with their intervals as text: "S = 0.30 (0.29 to 0.31) at 100 Mbit/s, ...".

    Args:
        speedups: From `speedups`.
    """
    return "S = " + ", ".join(f"{mean:.2f} ({low:.2f} to {high:.2f}) at {format_bandwidth(link)}"
                              for link, (mean, low, high) in speedups.items())


def scaling_figure(table: pd.DataFrame, predicted: Callable[[str, float, float], float]) -> Figure:
    """Draw the speedup over nodes in weak and in strong scaling; lines are predicted, each point is a run.

    Args:
        table: From `slept`.
        predicted: Returns the speedup of a kind of scaling, a number of nodes, and bits per second.
    """
    figure = plots.empty(9, 4)
    links = sorted(table["bandwidth"].unique(), key=bits_per_second)
    for axes, kind in zip(figure.subplots(1, 2, sharey=True), ("weak", "strong"), strict=True):
        for link, colour in zip(links, plots.COLOURS, strict=False):
            points = table[(table["bandwidth"] == link) & (table["kind"] == kind)]
            line = sorted(points["nodes"].unique())
            name, bits = format_bandwidth(link), bits_per_second(link)
            axes.plot(line, [predicted(kind, n, bits) for n in line], color=colour, label=f"{name}, predicted")
            axes.plot(points["nodes"], points["speedup"], "o", color=colour, markersize=4, label=f"{name}, a run")
        axes.plot(line, line, ":", color="0.4", label="ideal")
        axes.axhline(1, color="0.4", linewidth=0.8)
        axes.set(title=f"{kind} scaling", xlabel="nodes, one worker each", xscale="log", yscale="log")
        axes.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
        ticks = [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 4, 8]
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.set_axisbelow(True)
        axes.set_ylabel("speedup over one node" if kind == "weak" else "")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    return figure
