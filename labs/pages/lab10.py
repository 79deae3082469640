"""Page 10: the choice among networks, what a validation split costs, and bands over seeds."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from labs.pages import plots
from labs.pages.plots import Runs


def choice_figure(validation: ArrayLike, test: ArrayLike, chance: float) -> Figure:
    """Draw the accuracies of many networks, one dot each, and mark the one with the best validation accuracy."""
    x, y = np.asarray(validation, float), np.asarray(test, float)
    (axes,), best, most = plots.panels(1, 4, 7.5), int(x.argmax()), 1.1 * max(x.max(), y.max())
    axes.axhline(chance, color="0.5", linestyle=":", label=f"chance: {chance:.2f}")
    axes.axvline(chance, color="0.5", linestyle=":")
    axes.plot(x, y, "o", color=plots.COLOURS[0], alpha=0.5, markersize=5, label="a network")
    axes.plot(x[best], y[best], "s", color=plots.COLOURS[1], markersize=12, markerfacecolor="none", markeredgewidth=2.5,
              label=f"chosen: validation {x[best]:.3f},\ntest {y[best]:.3f}")
    axes.set(xlabel="validation accuracy (share right)", ylabel="test accuracy (share right)", xlim=(0, most),
             ylim=(0, most))
    return plots.finish(axes)


def best_of_figure(validation: np.ndarray, test: np.ndarray, truth: float) -> Figure:
    """Draw the accuracies of the network that is chosen among the first k by validation, over k; bands: 90 %.

    Accuracies are [repetitions, networks].
    """
    counts = np.unique(np.geomspace(1, validation.shape[1], 25).astype(int))
    firsts = [validation[:, :k].argmax(axis=1) for k in counts]
    (axes,) = plots.panels(1, 3.7)
    for values, label, colour in ((validation, "on the validation images, which chose it", plots.COLOURS[1]),
                                  (test, "on the test images, which did not", plots.COLOURS[0])):
        reached = np.stack([values[np.arange(len(values)), first] for first in firsts])
        axes.plot(counts, reached.mean(axis=1), color=colour, linewidth=2.5, label=label)
        axes.fill_between(counts, *np.quantile(reached, (0.05, 0.95), axis=1), color=colour, alpha=0.2, linewidth=0)
    axes.axhline(truth, color="0.3", linestyle=":", label=f"true accuracy of every network: {truth:g}")
    plots.set_log_ticks(axes, "x", [1, 10, 100])
    axes.set(xlabel="networks to choose from (log scale)", ylabel="accuracy of the chosen (share right)")
    return plots.finish_below(axes, 3)


def epoch_costs(runs: Runs) -> pd.DataFrame:
    """Return each run's images of an epoch, and the mean seconds for them over the epochs after the first."""
    rows = []
    for run in runs:
        history = pd.DataFrame(run["history"][1:])
        rows.append({"train_images": run["data"]["train"]["images"],
                     "val_images": run["data"].get("validation", {}).get("images", 0),
                     "train_seconds": history["train_seconds"].mean(),
                     "val_seconds": history["val_seconds"].mean() if "val_seconds" in history else 0.0})
    return pd.DataFrame(rows)


def split_figure(frame: pd.DataFrame) -> Figure:
    """Draw test accuracy and the time of an epoch over the share held out for validation: a dot per run, and means."""
    accuracy, time = plots.panels(2, 3.7)
    for axes, rows, column, name, colour in (
            (accuracy, frame, "test_accuracy", "test accuracy", plots.COLOURS[0]),
            (time, frame, "train_seconds", "training", plots.COLOURS[2]),
            (time, frame[frame["val_seconds"] > 0], "val_seconds", "validation", plots.COLOURS[1])):
        plots.draw_runs(axes, rows, "validation_split", column, colour, f"{name}: mean of the seeds")
        axes.set(xlabel="validation_split", xticks=sorted(frame["validation_split"].unique()))
    accuracy.set(ylabel="test accuracy (share right)", ylim=(0, 1))
    time.set(ylabel="seconds per epoch (mean without the first)", ylim=(0, None))
    return plots.finish_below(time, 2)


def seed_figure(runs: Mapping[str, Runs]) -> Figure:
    """Draw loss and validation accuracy over the epochs: a setting's mean over its seeds, and a band of all seeds."""
    left, right = plots.panels(2, 3.9)
    for axes, metric in ((left, "loss"), (right, "val_accuracy")):
        for (label, same), colour in zip(runs.items(), plots.COLOURS, strict=False):
            values = np.array([[row[metric] for row in run["history"]] for run in same], float)
            epochs = range(1, values.shape[1] + 1)
            axes.plot(epochs, values.mean(axis=0), marker="o", markersize=3, color=colour, label=label)
            axes.fill_between(epochs, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.2, linewidth=0)
        axes.set(xlabel="epoch")
        axes.locator_params(axis="x", integer=True)
    left.set(ylabel="training loss (nats)")
    right.set(ylabel="validation accuracy (share right)", ylim=(0, 1))
    return plots.finish_below(left, 3)
