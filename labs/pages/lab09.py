"""Page 9: trees of synthetic fruits; figures of a search, of learning rates, and of the rules that scale them.

    python -m labs.pages.lab09          makes both trees in the data folder, unless they are there
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from labs.datasets import synthetic
from labs.datasets.locks import make_folder_once
from labs.pages import plots
from labs.run import paths

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TESTS = 170
"""Test images of each variety: 1,020 in all, so the standard error of an accuracy is at most 0.016."""
COPIES = 40
"""Training images of each variety whose copies are added to 20 test images: two thirds leak, as in Fruits-360."""
QUALITY = 60
"""JPEG quality of the copies. The originals have 90, so no copy has the bytes of its original."""
RULES = {"none": "held", "sqrt": "square root", "linear": "linear", "updates": "held, N times the epochs"}
"""Labels of the rules for the learning rate; "updates" is "none" with N times the epochs."""


def large_tree() -> Path:
    """Return a tree with the training images of the embedded data and 1,020 test images; make it the first time."""
    return _make_tree("fruits-large", lambda home: synthetic.fruits360(home, TESTS))


def leaky_tree() -> Path:
    """Return the embedded tree with copies of training images in its test set; make it the first time."""
    return _make_tree("fruits-leaky", _write_leaky)


def _make_tree(name: str, write: Callable[[Path], None]) -> Path:
    return make_folder_once(paths.data_dir() / name, f"generating {name}", write)


def _write_leaky(home: Path) -> None:
    """Write the embedded tree; some training images of each class are saved in Test again, under new names."""
    synthetic.fruits360(home)
    for folder in sorted((home / "Training").iterdir()):
        names = sorted(path.name for path in folder.iterdir())
        for number, name in enumerate(np.random.default_rng(1).permutation(names)[:COPIES]):
            with Image.open(folder / name) as image:
                image.save(home / "Test" / folder.name / f"{100 + number}_100.jpg", quality=QUALITY)


def trial_figure(histories: Mapping[int, Sequence[float]], best: int, epochs: int) -> Figure:
    """Draw the validation accuracy of each trial over its epochs; a cross ends one that was pruned.

    Args:
        histories: Validation accuracy per epoch by trial.
        best: The trial that won.
        epochs: Epochs of a trial that is not pruned.
    """
    axes = plots.empty(9, 3.4).subplots()
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
    """Return the runs of one optimizer at the learning rate that most of them have, with the column `rule`.

    Args:
        frame: Runs of lab 9's sweeps "workers", "updates" and "rates", from `records.table`.
    """
    several = frame[frame["size"] > 1]
    usual = {name: several[name].mode()[0] for name in ("base_lr", "optimizer", "batch_size", "width")}
    rows = frame[np.logical_and.reduce([frame[name] == value for name, value in usual.items()])]
    longer = rows["epochs"] > rows["epochs"].min()
    return rows.assign(rule=np.where(longer, "updates", rows["scaling"]))


def rule_figure(frame: pd.DataFrame) -> Figure:
    """Draw test accuracy and test loss over the workers: a line for each rule and each kind of statistics.

    Dots are means over the seeds; bars reach from the lowest to the highest seed.

    Args:
        frame: From `add_rules`. Runs of one worker belong to every rule.
    """
    figure = plots.empty(9, 4.2)
    left, right = figure.subplots(1, 2)
    for axes, metric in ((left, "test_accuracy"), (right, "test_loss")):
        for number, (rule, label) in enumerate(RULES.items()):
            colour, beside = plots.COLOURS[number], 0.05 * (number - 1.5)  # So that no bar hides another.
            of_rule = frame[(frame["rule"] == rule) | (frame["size"] == 1)]
            of_rule = of_rule.assign(size=of_rule["size"] + beside)
            if of_rule["size"].nunique() > 1:
                _draw_line(axes, of_rule, "size", metric, "--s", colour, f"{label}: running statistics", "white")
                _draw_line(axes, of_rule, "size", f"{metric}_recomputed", "-o", colour,
                           f"{label}: recomputed statistics", colour)
        axes.set(xlabel="workers", xticks=sorted(frame["size"].unique()))
        axes.grid(alpha=0.3)
    left.set(ylabel="test accuracy (share right)", ylim=(0, 1))
    right.set(ylabel="test loss (nats, log scale)", yscale="log")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    return figure


def rate_figure(frame: pd.DataFrame, marked: Sequence[float] = ()) -> Figure:
    """Draw test accuracy over the learning rate, a line for each optimizer; dots and bars as in `rule_figure`.

    Args:
        frame: A row per run: columns `base_lr`, `optimizer`, `test_accuracy_recomputed`.
        marked: Learning rates to mark with a vertical line.
    """
    axes = plots.empty(8, 3.4).subplots()
    for (optimizer, rows), colour in zip(frame.groupby("optimizer"), plots.COLOURS, strict=False):
        _draw_line(axes, rows, "base_lr", "test_accuracy_recomputed", "-o", colour, str(optimizer), colour)
    for number, rate in enumerate(marked):
        axes.axvline(rate, color="0.5", linestyle=":", label="report F's two learning rates" if not number else None)
    axes.set(xscale="log", ylim=(0, 1), xlabel="learning rate (log scale)", ylabel="test accuracy (share right)")
    return plots.finish(axes)


def _draw_line(axes: Axes, rows: pd.DataFrame, by: str, metric: str, style: str, colour: str, label: str,
               face: str) -> None:
    groups = rows.groupby(by)[metric]
    mean = groups.mean()
    ends: Any = np.abs(np.stack([groups.min() - mean, groups.max() - mean]))
    axes.errorbar(mean.index, mean, ends, fmt=style, color=colour, capsize=3, markersize=5, label=label,
                  markerfacecolor=face)


if __name__ == "__main__":
    for tree in (large_tree(), leaky_tree()):
        print(tree)
