"""Page 9: trees of synthetic fruits; figures of a search, of learning rates, and of the rules that scale them.

    python -m labs.pages.lab09          makes both trees in the data folder, unless they are there
"""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from labs.datasets import synthetic
from labs.pages import plots
from labs.run import paths
from labs.run.atomic import make_folder_once

TESTS = 170
"""Test images of each variety: 1,020 in all, so the standard error of an accuracy is at most 0.016."""
COPIES = 40
"""Training images of each variety whose copies are added to 20 test images: two thirds leak, as in Fruits-360."""
RULES = {"none": "held", "sqrt": "square root", "linear": "linear", "updates": "held, N times the epochs"}
"""Labels of the rules for the learning rate; "updates" is "none" with N times the epochs."""


def large_tree() -> Path:
    """Return a tree with the training images of the embedded data and 1,020 test images; make it the first time."""
    return make_folder_once(paths.data_dir() / "fruits-large", "generating fruits-large",
                            lambda home: synthetic.fruits360(home, TESTS))


def leaky_tree() -> Path:
    """Return the embedded tree with copies of training images in its test set; make it the first time."""
    def write(home: Path) -> None:
        synthetic.fruits360(home)
        for folder in sorted((home / "Training").iterdir()):
            names = sorted(path.name for path in folder.iterdir())
            for number, name in enumerate(np.random.default_rng(1).permutation(names)[:COPIES]):
                with Image.open(folder / name) as image:  # The originals have quality 90: no copy has their bytes.
                    image.save(home / "Test" / folder.name / f"{100 + number}_100.jpg", quality=60)

    return make_folder_once(paths.data_dir() / "fruits-leaky", "generating fruits-leaky", write)


def trial_figure(histories: Mapping[int, Sequence[float]], best: int, epochs: int) -> Figure:
    """Draw the validation accuracy of each trial over its epochs; a cross ends one that was pruned."""
    (axes,) = plots.panels(1, 3.4)
    for (trial, values), colour in zip(histories.items(), itertools.cycle(plots.COLOURS), strict=False):
        wins, is_pruned = trial == best, len(values) < epochs
        label = f"trial {trial}" + ", chosen" * wins + ", pruned" * is_pruned
        axes.plot(range(1, len(values) + 1), values, "-o", color=colour, linewidth=3 if wins else 1.2, markersize=4,
                  label=label)
        if is_pruned:
            axes.plot(len(values), values[-1], "x", color=colour, markersize=11, markeredgewidth=2)
    axes.set(xlabel="epoch", ylabel="validation accuracy (share right)", ylim=(0, 1), xticks=range(1, epochs + 1))
    return plots.finish(axes)


def add_rules(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of one optimizer at the learning rate that most of them have, with the column `rule`."""
    several = frame[frame["size"] > 1]
    usual = {name: several[name].mode()[0] for name in ("base_lr", "optimizer", "batch_size", "width")}
    rows = frame[np.logical_and.reduce([frame[name] == value for name, value in usual.items()])]
    longer = rows["epochs"] > rows["epochs"].min()
    return rows.assign(rule=np.where(longer, "updates", rows["scaling"]))


def rule_figure(frame: pd.DataFrame) -> Figure:
    """Draw test accuracy and test loss over the workers: a line for each rule and each kind of statistics.

    Dots are means over the seeds; bars reach from the lowest to the highest. Runs of one worker belong to every rule.
    """
    left, right = plots.panels(2, 4.2)
    for number, (rule, label) in enumerate(RULES.items()):
        colour = plots.COLOURS[number]
        rows = frame[(frame["rule"] == rule) | (frame["size"] == 1)]
        if rows["size"].nunique() > 1:
            rows = rows.assign(size=rows["size"] + 0.05 * (number - 1.5))  # So that no bar hides another.
            for axes, metric in ((left, "test_accuracy"), (right, "test_loss")):
                _draw_line(axes, rows, "size", metric, "--s", colour, f"{label}: running statistics", "white")
                _draw_line(axes, rows, "size", f"{metric}_recomputed", "-o", colour,
                           f"{label}: recomputed statistics", colour)
    for axes in (left, right):
        axes.set(xlabel="workers", xticks=sorted(frame["size"].unique()))
    left.set(ylabel="test accuracy (share right)", ylim=(0, 1))
    right.set(ylabel="test loss (nats, log scale)", yscale="log")
    return plots.finish_below(left, 2)


def rate_figure(frame: pd.DataFrame, marked: Sequence[float]) -> Figure:
    """Draw test accuracy over the learning rate, a line for each optimizer; `marked` are report F's learning rates."""
    (axes,) = plots.panels(1, 3.4, 8)
    for (optimizer, rows), colour in zip(frame.groupby("optimizer"), plots.COLOURS, strict=False):
        _draw_line(axes, rows, "base_lr", "test_accuracy_recomputed", "-o", colour, str(optimizer), colour)
    for number, rate in enumerate(marked):
        axes.axvline(rate, color="0.5", linestyle=":", label="report F's two learning rates" if not number else None)
    axes.set(xscale="log", ylim=(0, 1), xlabel="learning rate (log scale)", ylabel="test accuracy (share right)")
    return plots.finish(axes)


def _draw_line(axes: Axes, rows: pd.DataFrame, by: str, metric: str, style: str, colour: str, label: str,
               face: str) -> None:
    line = rows.groupby(by)[metric].agg(["mean", "min", "max"])
    axes.errorbar(line.index, line["mean"], [line["mean"] - line["min"], line["max"] - line["mean"]], fmt=style,
                  color=colour, capsize=3, markersize=5, label=label, markerfacecolor=face)


if __name__ == "__main__":
    for tree in (large_tree(), leaky_tree()):
        print(tree)
