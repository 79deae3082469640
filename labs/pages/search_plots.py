"""Figures of a hyperparameter search, of learning rates, and of the rules that scale them (lab 9)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from labs.pages import plots

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RULES = {"none": "held", "sqrt": "square root", "linear": "linear", "updates": "held, N times the epochs"}
"""Labels of the rules for the learning rate; "updates" is "none" with N times the epochs."""
RUNNING, RECOMPUTED = "running statistics", "recomputed statistics"


def with_rules(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of one optimizer at the learning rate that most of them have, with the column `rule`.

    Args:
        frame: Runs of lab 9's sweeps "workers", "updates" and "rates", from `records.table`.
    """
    several = frame[frame["size"] > 1]
    usual = {name: several[name].mode()[0] for name in ("base_lr", "optimizer", "batch_size", "width")}
    rows = frame[np.logical_and.reduce([frame[name] == value for name, value in usual.items()])]
    longer = rows["epochs"] > rows["epochs"].min()
    return rows.assign(rule=np.where(longer, "updates", rows["scaling"]))


def trials(histories: Mapping[int, Sequence[float]], best: int, epochs: int) -> Figure:
    """Draw the validation accuracy of each trial over its epochs; a cross ends one that was pruned.

    Args:
        histories: Validation accuracy per epoch by trial.
        best: The trial that won.
        epochs: Epochs of a trial that is not pruned.
    """
    figure = plots.empty(9, 3.4)
    axes = figure.subplots()
    for (trial, values), colour in zip(histories.items(), itertools.cycle(plots.COLOURS), strict=False):
        wins, is_pruned = trial == best, len(values) < epochs
        label = f"trial {trial}" + ", chosen" * wins + ", pruned" * is_pruned
        axes.plot(range(1, len(values) + 1), values, "-o", color=colour, linewidth=3 if wins else 1.2, markersize=4,
                  label=label)
        if is_pruned:
            axes.plot(len(values), values[-1], "x", color=colour, markersize=11, markeredgewidth=2)
    axes.set(xlabel="epoch", ylabel="validation accuracy (share right)", ylim=(0, 1), xticks=range(1, epochs + 1))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=9, **plots.BESIDE)
    return figure


def rules(frame: pd.DataFrame) -> Figure:
    """Draw test accuracy and test loss over the workers: a line for each rule and each kind of statistics.

    Dots are means over the seeds; bars reach from the lowest to the highest seed.

    Args:
        frame: A row per run: columns `size`, `rule` (a key of RULES), `test_accuracy`, `test_loss`, and the latter two
            with `_recomputed`. Runs of one worker belong to every rule.
    """
    figure = plots.empty(9, 4.2)
    left, right = figure.subplots(1, 2)
    for axes, metric in ((left, "test_accuracy"), (right, "test_loss")):
        for number, (rule, label) in enumerate(RULES.items()):
            colour, beside = plots.COLOURS[number], 0.05 * (number - 1.5)  # So that no bar hides another.
            of_rule = frame[(frame["rule"] == rule) | (frame["size"] == 1)]
            of_rule = of_rule.assign(size=of_rule["size"] + beside)
            if of_rule["size"].nunique() > 1:
                _line(axes, of_rule, "size", metric, "--s", colour, f"{label}: {RUNNING}", hollow=True)
                _line(axes, of_rule, "size", f"{metric}_recomputed", "-o", colour, f"{label}: {RECOMPUTED}")
        axes.set(xlabel="workers", xticks=sorted(frame["size"].unique()))
        axes.grid(alpha=0.3)
    left.set(ylabel="test accuracy (share right)", ylim=(0, 1))
    right.set(ylabel="test loss (nats, log scale)", yscale="log")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    return figure


def rates(frame: pd.DataFrame, marked: Sequence[float] = ()) -> Figure:
    """Draw test accuracy over the learning rate, a line for each optimizer; dots and bars as in `rules`.

    Args:
        frame: A row per run: columns `base_lr`, `optimizer`, `test_accuracy_recomputed`.
        marked: Learning rates to mark with a vertical line.
    """
    figure = plots.empty(8, 3.4)
    axes = figure.subplots()
    for (optimizer, rows), colour in zip(frame.groupby("optimizer"), plots.COLOURS, strict=False):
        _line(axes, rows, "base_lr", "test_accuracy_recomputed", "-o", colour, str(optimizer))
    for number, rate in enumerate(marked):
        axes.axvline(rate, color="0.5", linestyle=":", label="report F's two learning rates" if not number else None)
    axes.set(xscale="log", ylim=(0, 1), xlabel="learning rate (log scale)", ylabel="test accuracy (share right)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=9, **plots.BESIDE)
    return figure


def _line(axes: Axes, rows: pd.DataFrame, by: str, metric: str, style: str, colour: str, label: str,
          hollow: bool = False) -> None:
    groups = rows.groupby(by)[metric]
    mean = groups.mean()
    ends: Any = np.abs(np.stack([groups.min() - mean, groups.max() - mean]))
    axes.errorbar(mean.index, mean, ends, fmt=style, color=colour, capsize=3, markersize=5, label=label,
                  markerfacecolor="white" if hollow else colour)
