"""Page 8: faces, errors, layouts and batch sizes on one node; scaling over nodes against its models."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from labs.launch import local
from labs.pages import lab05, lab11, laws, plots
from labs.results import cost_model, noise, records, scaling
from labs.run.cluster_state import bits_per_second, format_bandwidth

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from labs.datasets.splits import Splits
    from labs.launch.resident import Workers

Runs = Sequence[dict[str, Any]]
NETWORKS = {"resnet50": "ResNet50", "inception_v3": "InceptionV3", "vgg16": "VGG16", "vgg16_dense": "VGG16, dense"}
"""The networks of report A as lab 8 and as the report call them."""
CORES = 2
"""The cores of the machine that all nodes of the reference runs share."""


def face_figure(splits: Splits, count: int = 12) -> Figure:
    """Draw some training faces in the order of their ages, each with its age."""
    train = splits.train
    order = train.positions[np.argsort(train.labels[train.positions])]
    chosen = order[np.linspace(0, len(order) - 1, count).astype(int)]
    return plots.pictures(list(train.images[chosen]), [f"{age:.0f}" for age in train.labels[chosen]], height=1.3)


def run_quietly(lab: ModuleType, config: Any, workers: Workers | None = None) -> dict[str, Any]:
    """Run a lab without its log, and return the record.

    By default a new process runs the lab as one worker: a notebook's own process has started TensorFlow with the
    threads of all cores.
    """
    with contextlib.redirect_stdout(io.StringIO()):
        return workers.run(lab, config) if workers else local.run(lab, config, workers=1)


def error_figure(runs: Sequence[Mapping[str, Any]], median: float) -> Figure:
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
    return plots.finish(axes)


def layout_figure(turns: pd.DataFrame) -> Figure:
    """Draw the images per second of each layout, a column of `turns`: a dot per turn, their mean with its interval."""
    axes = plots.empty(9, 2.4).subplots()
    for row, (_, values) in enumerate(turns.items()):
        low, high = noise.mean_interval(values)
        axes.plot(values, [row + 0.18] * len(values), ".", color="0.6", label="one turn" if not row else None)
        axes.errorbar(values.mean(), row, xerr=[[values.mean() - low], [high - values.mean()]], fmt="o", capsize=3,
                      color=plots.COLOURS[0], label="mean, 95 % interval" if not row else None)
    axes.set_yticks(range(turns.shape[1]), turns.columns)
    axes.set(xlabel="images per second, all processes together", xlim=(0, None), ylim=(turns.shape[1] - 0.5, -0.5))
    return plots.finish(axes)


def layout_table(runs: Runs, report: pd.DataFrame) -> pd.DataFrame:
    """Return each network's images per second on one node, as text: as one process and as two, and at full image size.

    Columns: both layouts of two cores, their ratio with its interval (95 % for all three together), the full-size
    images per second of both cores (median), and report A's of 28 cores.

    Args:
        runs: Records of lab 8's sweeps "layouts" and "full".
        report: data/reference/lab08_throughput.csv.
    """
    import pandas as pd

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


def batch_figure(cores: pd.DataFrame, gpu: Runs, report: pd.DataFrame) -> Figure:
    """Draw images per second over the batch size: the small network here, and the networks on a GPU beside report A's.

    Args:
        cores: A row per turn, a column per batch size.
        gpu: Records of the networks on one GPU at several batch sizes.
        report: data/reference/lab08_throughput.csv.
    """
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


# Scaling over nodes.

def needed_shares(runs: Runs, kind: Literal["weak", "strong"]) -> pd.DataFrame:
    """Return a row per link and number of nodes: the step's seconds, the speedup, and the share that the law needs.

    `compute` is the step of one node, `share` is Amdahl's s in strong scaling (the Karp-Flatt metric) and Gustafson's
    in weak scaling, and `by_ring` is Amdahl's s of a ring that uses all of the link.

    Args:
        runs: Records of lab 11's sweeps over links, one worker on each node.
        kind: "strong" holds the global batch, "weak" the batch of a node.
    """
    frame = records.table(lab11.training_runs(runs))
    scaled = scaling.speedups(frame, scaling=kind).dropna(subset=["speedup"]).sort_values(["link", "nodes"])
    one = scaled[scaled["nodes"] == 1].set_index("link")["images_per_sec"]
    batch = int(frame["global_batch_size"].min())  # Of one node, and in strong scaling of all together.
    images = batch * (scaled["nodes"] if kind == "weak" else 1)
    rows = scaled[["link", "nodes", "speedup"]].assign(
        seconds=images / scaled["images_per_sec"], compute=batch / scaled["link"].map(one),
        nbytes=frame["gradient_bytes"].iloc[0], bandwidth=scaled["link"].map(bits_per_second) / 8)
    share = laws.amdahl_share if kind == "strong" else laws.gustafson_share
    several = rows[rows["nodes"] > 1]
    rows.loc[several.index, "share"] = share(several["nodes"], several["speedup"])
    return rows.assign(by_ring=laws.ring_share(rows["compute"], rows["nbytes"], rows["bandwidth"]))


def needed_share_figure(runs: Runs) -> Figure:
    """Draw the share s that each point needs over the number of nodes: Amdahl's by link, Gustafson's beside 1 - E."""
    figure = plots.empty(9, 3.6)
    left, right = figure.subplots(1, 2)
    strong, weak = needed_shares(runs, "strong"), needed_shares(runs, "weak").query("link == '100mbit' and nodes > 1")
    links = sorted(strong["link"].unique(), key=bits_per_second)
    for link, colour in zip(links, plots.COLOURS, strict=False):
        line = strong[(strong["link"] == link) & (strong["nodes"] > 1)]
        left.plot(line["nodes"], line["share"], "o", color=colour, label=f"{format_bandwidth(link)}: measured")
        left.plot(line["nodes"], line["by_ring"], "--", color=colour,
                  label=f"{format_bandwidth(link)}: $2M / (BW\\,c)$")
    left.axhline(1, color="0.4", linewidth=0.8)
    left.set(yscale="log", title="strong: Amdahl's $s$ (Karp-Flatt)", ylabel="s that this point needs")
    ticks = [0.1, 0.3, 1, 3, 10, 30]
    left.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    left.minorticks_off()
    lost = 1 - weak["speedup"] / weak["nodes"]
    right.plot(weak["nodes"], weak["share"], "o-", color=plots.COLOURS[0], label="Gustafson's $s$")
    right.plot(weak["nodes"], lost, "s-", color=plots.COLOURS[1], label="$1 - E$")
    right.set(title="weak, 100 Mbit/s", ylabel="share", ylim=(0, None))
    for axes in (left, right):
        axes.set(xlabel="nodes", xticks=[2, 4, 8])
        axes.grid(alpha=0.3)
    figure.legend(handles=[*left.get_legend_handles_labels()[0], *right.get_legend_handles_labels()[0]],
                  loc="outside lower center", ncols=4, fontsize=8)
    return figure


def fit_table(runs: Runs, exchanges: Runs, kind: Literal["weak", "strong"]) -> pd.DataFrame:
    """Return the speedup over links of 100 Mbit/s as measured and by three models, each with its relative residual.

    `law` is Amdahl's in strong and Gustafson's in weak scaling, fitted to these points (least squares, without the
    bound s <= 1). The ring and lab 5's model are not fitted: their step is its computation on CORES shared cores, and
    the seconds of the ring's bytes on the whole link, or on the share of it that lab 5's all-reduces reached.

    Args:
        runs: Records of lab 11's sweeps over links.
        exchanges: Records of lab 5's study "links".
        kind: "strong" for Amdahl's law, "weak" for Gustafson's.
    """
    rows = needed_shares(runs, kind).query("link == '100mbit' and nodes > 1").set_index("nodes")
    n, speedup = rows.index.to_numpy(float), rows["speedup"].to_numpy()
    fitted = laws.amdahl(n, laws.fit_amdahl(n, speedup)) if kind == "strong" else (
        laws.gustafson(n, laws.slope(n - 1, n - speedup)))
    shares = lab05.link_shares(exchanges).query("backend == 'MPI' and bandwidth == '100mbit'")
    table = rows[["speedup"]].rename(columns={"speedup": "measured"})
    table["law"] = fitted
    for name, reached in (("ring", 1.0), ("lab 5", shares.set_index("nodes")["share"].reindex(rows.index))):
        images = n if kind == "weak" else 1  # In units of one node's step.
        ring = cost_model.ring_seconds(rows["nbytes"], n, 0, rows["bandwidth"] * reached)
        table[name] = images * rows["compute"] / (rows["compute"] * images / np.minimum(n, CORES) + ring)
    for name in table.columns[1:]:
        table[f"{name}, residual"] = table[name] / table["measured"] - 1
    return table
