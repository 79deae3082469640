"""Page 10: the choice among networks, what a validation split costs, and bands over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from labs.pages import plots
from labs.results import records

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike


def choice_figure(validation: ArrayLike, test: ArrayLike, chance: float) -> Figure:
    """Draw the accuracies of many networks, one dot each, and mark the one with the best validation accuracy.

    Args:
        validation, test: Accuracies of each network [networks].
        chance: The accuracy of guessing.
    """
    x, y = np.asarray(validation, float), np.asarray(test, float)
    best = int(x.argmax())
    axes = plots.empty(7.5, 4).subplots()
    axes.axhline(chance, color="0.5", linestyle=":", label=f"chance: {chance:.2f}")
    axes.axvline(chance, color="0.5", linestyle=":")
    axes.plot(x, y, "o", color=plots.COLOURS[0], alpha=0.5, markersize=5, label="a network")
    axes.plot(x[best], y[best], "s", color=plots.COLOURS[1], markersize=12, markerfacecolor="none", markeredgewidth=2.5,
              label=f"chosen: validation {x[best]:.3f},\ntest {y[best]:.3f}")
    most = 1.1 * max(x.max(), y.max())
    axes.set(xlabel="validation accuracy (share right)", ylabel="test accuracy (share right)", xlim=(0, most),
             ylim=(0, most))
    return plots.finish(axes)


def best_of_figure(validation: np.ndarray, test: np.ndarray, truth: float) -> Figure:
    """Draw the accuracies of the network that is chosen among the first k by validation, over k.

    Lines are means over the repetitions; bands have the middle 90 % of them.

    Args:
        validation, test: Accuracies [repetitions, networks].
        truth: The accuracy of every network on all images that there are.
    """
    counts = np.unique(np.geomspace(1, validation.shape[1], 25).astype(int))
    rows = np.arange(len(validation))
    firsts = [validation[:, :k].argmax(axis=1) for k in counts]
    figure = plots.empty(9, 3.7)
    axes = figure.subplots()
    for values, label, colour in ((validation, "on the validation images, which chose it", plots.COLOURS[1]),
                                  (test, "on the test images, which did not", plots.COLOURS[0])):
        reached = np.stack([values[rows, first] for first in firsts])
        axes.plot(counts, reached.mean(axis=1), color=colour, linewidth=2.5, label=label)
        low, high = np.quantile(reached, (0.05, 0.95), axis=1)
        axes.fill_between(counts, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.axhline(truth, color="0.3", linestyle=":", label=f"true accuracy of every network: {truth:g}")
    axes.set(xscale="log", xlabel="networks to choose from (log scale)", ylabel="accuracy of the chosen (share right)")
    axes.set_xticks([1, 10, 100], ["1", "10", "100"])
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=3, fontsize=9)
    return figure


def epoch_costs(runs: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Return each run's images of an epoch, and the mean seconds for them over the epochs after the first.

    Returns:
        The columns `train_images`, `val_images`, `train_seconds` and `val_seconds`; validation may have none.
    """
    import pandas as pd

    rows = []
    for run in runs:
        history = records.curves(run).iloc[1:]
        rows.append({f"{short}_images": run["data"].get(name, {}).get("images", 0)
                     for short, name in (("train", "train"), ("val", "validation"))} |
                    {name: float(history[name].mean()) if name in history else 0.0
                     for name in ("train_seconds", "val_seconds")})
    return pd.DataFrame(rows)


def split_figure(frame: pd.DataFrame) -> Figure:
    """Draw test accuracy and the time of an epoch over the share held out for validation: a dot per run, and means.

    Args:
        frame: A row per run: columns `validation_split`, `test_accuracy`, `train_seconds` and `val_seconds`.
    """
    figure = plots.empty(9, 3.7)
    accuracy, time = figure.subplots(1, 2)
    _draw_dots(accuracy, frame, "test_accuracy", "test accuracy", 0)
    _draw_dots(time, frame, "train_seconds", "training", 2)
    _draw_dots(time, frame[frame["val_seconds"] > 0], "val_seconds", "validation", 1)
    accuracy.set(ylabel="test accuracy (share right)", ylim=(0, 1))
    time.set(ylabel="seconds per epoch (mean without the first)", ylim=(0, None))
    for axes in (accuracy, time):
        axes.set(xlabel="validation_split", xticks=sorted(frame["validation_split"].unique()))
        axes.grid(alpha=0.3)
    figure.legend(*time.get_legend_handles_labels(), loc="outside lower right", ncols=2, fontsize=9)
    return figure


def _draw_dots(axes: Axes, frame: pd.DataFrame, column: str, label: str, colour: int) -> None:
    means = frame.groupby("validation_split")[column].mean()
    axes.plot(frame["validation_split"], frame[column], "o", color=plots.COLOURS[colour], alpha=0.5, markersize=5)
    axes.plot(means.index, means, "-", color=plots.COLOURS[colour], linewidth=2, label=f"{label}: mean of the seeds")


def seed_figure(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """Draw loss and validation accuracy over the epochs: a setting's mean over its seeds, and a band of all seeds.

    Args:
        runs: The records of each setting, one per seed, by its label.
    """
    figure = plots.empty(9, 3.9)
    left, right = figure.subplots(1, 2)
    for axes, metric in ((left, "loss"), (right, "val_accuracy")):
        for (label, same), colour in zip(runs.items(), plots.COLOURS, strict=False):
            values = np.array([[row[metric] for row in run["history"]] for run in same], float)
            epochs = [row["epoch"] for row in same[0]["history"]]
            axes.plot(epochs, values.mean(axis=0), marker="o", markersize=3, color=colour, label=label)
            axes.fill_between(epochs, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.2, linewidth=0)
        axes.set(xlabel="epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
    left.set(ylabel="training loss (nats)")
    right.set(ylabel="validation accuracy (share right)", ylim=(0, 1))
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9)
    return figure
