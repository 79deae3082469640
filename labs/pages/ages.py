"""Age estimation on one node: the figures of lab 8: faces, errors, layouts, batch sizes."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from labs.launch import local
from labs.pages import plots
from labs.results import noise

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from labs.datasets.splits import Splits
    from labs.launch.resident import Workers

NETWORKS = {"resnet50": "ResNet50", "inception_v3": "InceptionV3", "vgg16": "VGG16", "vgg16_dense": "VGG16, dense"}
"""The networks of report A as lab 8 and as the report call them."""


def run_quietly(lab: ModuleType, config: Any, workers: Workers | None = None) -> dict[str, Any]:
    """Run a lab without its log, and return the record.

    Args:
        lab: Its module.
        config: Its settings.
        workers: The notebook's workers, from `resident.start`. By default a new process runs the lab as one worker: a
            notebook's own process has started TensorFlow with the threads of all cores.
    """
    with contextlib.redirect_stdout(io.StringIO()):
        return workers.run(lab, config) if workers else local.run(lab, config, workers=1)


def faces(splits: Splits, count: int = 12) -> Figure:
    """Draw some training faces in the order of their ages, each with its age."""
    train = splits.train
    order = train.positions[np.argsort(train.labels[train.positions])]
    shown = order[np.linspace(0, len(order) - 1, count).astype(int)]
    return plots.pictures(list(train.images[shown]), [f"{age:.0f}" for age in train.labels[shown]], height=1.3)


def errors(runs: Sequence[Mapping[str, Any]], median: float) -> Figure:
    """Draw each run's mean absolute error on training and test faces, by network, with the median's error as a line.

    Args:
        runs: Records of lab 8 with a test.
        median: Test error of always guessing the median age, in years.
    """
    axes = plots.empty(9, 2.6).subplots()
    names = list(dict.fromkeys(run["config"]["model"] for run in runs))
    for marker, label, value in (("o", "training faces, last epoch", lambda run: run["history"][-1]["mae"]),
                                 ("s", "test faces", lambda run: run["metrics"]["test_mae"])):
        rows = [names.index(run["config"]["model"]) + (0.12 if marker == "s" else -0.12) for run in runs]
        axes.plot([value(run) for run in runs], rows, marker, color=plots.COLOURS[marker == "s"], label=label)
    axes.axvline(median, color="0.3", linestyle=":", label="test faces, always the median age")
    axes.set_yticks(range(len(names)), [NETWORKS.get(name, f"{name} network") for name in names])
    axes.set(xlabel="mean absolute error (years)", xlim=(0, None), ylim=(len(names) - 0.5, -0.5))
    return plots.finished(axes)


def layouts(turns: pd.DataFrame) -> Figure:
    """Draw the images per second of each layout: a dot per turn, their mean with its 95 % interval.

    Args:
        turns: A row per turn, a column per layout.
    """
    axes = plots.empty(9, 2.4).subplots()
    for row, (_, values) in enumerate(turns.items()):
        low, high = noise.mean_interval(values)
        axes.plot(values, [row + 0.18] * len(values), ".", color="0.6", label="one turn" if not row else None)
        axes.errorbar(values.mean(), row, xerr=[[values.mean() - low], [high - values.mean()]], fmt="o", capsize=3,
                      color=plots.COLOURS[0], label="mean, 95 % interval" if not row else None)
    axes.set_yticks(range(turns.shape[1]), turns.columns)
    axes.set(xlabel="images per second, all processes together", xlim=(0, None), ylim=(turns.shape[1] - 0.5, -0.5))
    return plots.finished(axes)


def batches(cores: pd.DataFrame, gpu: Sequence[dict[str, Any]], report: pd.DataFrame) -> Figure:
    """Draw images per second over the batch size: the small network here, and the networks on a GPU beside report A's.

    Args:
        cores: A row per turn, a column per batch size.
        gpu: Records of the networks on one GPU at several batch sizes.
        report: data/reference/lab08_throughput.csv.
    """
    from labs.results import records

    figure = plots.empty(9, 3.4)
    left, right = figure.subplots(1, 2)
    means = cores.mean()
    ends = np.array([noise.mean_interval(cores[size]) for size in cores]).T
    left.errorbar(means.index, means, np.abs(ends - means.to_numpy()), fmt="o-", capsize=3, color=plots.COLOURS[5])
    left.set(title="small network, all cores", xticks=list(means.index))
    one_gpu = report.query("experiment == 'batch-size sweep'").set_index("model")
    for model, colour in zip(NETWORKS, plots.COLOURS, strict=False):
        name = NETWORKS[model]
        line = records.table(run for run in gpu if run["config"]["model"] == model).sort_values("batch_size")
        right.plot(line["batch_size"], line["images_per_sec"], "o-", color=colour, label=name)
        if name in one_gpu.index:
            right.plot(128, one_gpu.loc[name, "images_per_sec"], "s", color=colour, markerfacecolor="none",
                       label=f"report A, {name}")
    right.set(title="one GPU, 224 pixels", xticks=[32, 64, 128])
    for axes in (left, right):
        axes.set(xlabel="batch size (images per step)", ylabel="images per second", ylim=(0, None))
        axes.grid(alpha=0.3)
    right.legend(fontsize=8, **plots.BESIDE)
    return figure


def networks(runs: Sequence[dict[str, Any]], report: pd.DataFrame) -> pd.DataFrame:
    """Return each network's images per second on one node, as text: as one process and as two, and at full image size.

    Columns: both layouts of two cores, their ratio with its interval (95 % for all three together), the full-size
    images per second of both cores (median), and report A's of 28 cores.

    Args:
        runs: Records of lab 8's sweeps "layouts" and "full".
        report: data/reference/lab08_throughput.csv.
    """
    import pandas as pd

    from labs.results import records

    frame = records.table(runs)
    frame = frame[frame["steps_per_epoch"] > 0]
    node = report.query("experiment == 'process-thread sweep'").set_index("model")["images_per_sec"]
    rows = {}
    for model, name in [*NETWORKS.items()][:3]:
        both_cores = frame["size"] * frame["threads"] == 2
        speeds = frame[(frame["model"] == model) & (frame["global_batch_size"] == 8) & both_cores]
        large = speeds.loc[speeds["image_size"] >= 224, "images_per_sec"]
        uncut, cut = (speeds[(speeds["image_size"] < 224) & (speeds["size"] == size)] for size in (1, 2))
        ratio = noise.compare(cut, uncut, "images_per_sec", ratio=True, comparisons=3)
        rows[name] = {"1 x 2": f"{noise.geometric_mean(uncut['images_per_sec']):.0f}",
                      "2 x 1": f"{noise.geometric_mean(cut['images_per_sec']):.0f}",
                      "2 x 1 over 1 x 2": f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})",
                      "full size": f"{large.median():.2f}", "report A, 28 cores": f"{node[name]:.1f}"}
    return pd.DataFrame(rows).T
