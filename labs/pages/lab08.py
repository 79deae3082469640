"""Page 8: faces, errors, layouts and batch sizes on one node; scaling over nodes against its models."""

from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from labs.pages import lab05, lab11, laws, plots
from labs.pages.plots import Runs
from labs.results import cost_model, noise, records, scaling
from labs.run.cluster_state import bits_per_second, format_bandwidth

NETWORKS = {"resnet50": "ResNet50", "inception_v3": "InceptionV3", "vgg16": "VGG16", "vgg16_dense": "VGG16, dense"}
"""The networks of report A as lab 8 and as the report call them."""
CORES = 2  # Of the machine that all nodes of the reference runs share.


def error_figure(runs: Runs, median: float) -> Figure:
    """Draw each run's mean absolute error (years) on training and test faces; `median` is that of guessing."""
    (axes,) = plots.panels(1, 2.6)
    names = list(dict.fromkeys(run["config"]["model"] for run in runs))
    rows = np.array([names.index(run["config"]["model"]) for run in runs])
    axes.plot([run["history"][-1]["mae"] for run in runs], rows - 0.12, "o", color=plots.COLOURS[0],
              label="training faces, last epoch")
    axes.plot([run["metrics"]["test_mae"] for run in runs], rows + 0.12, "s", color=plots.COLOURS[1],
              label="test faces")
    axes.axvline(median, color="0.3", linestyle=":", label="test faces, always the median age")
    axes.set_yticks(range(len(names)), [NETWORKS.get(name, f"{name} network") for name in names])
    axes.set(xlabel="mean absolute error (years)", xlim=(0, None), ylim=(len(names) - 0.5, -0.5))
    return plots.finish(axes)


def mean_and_interval(turns: pd.DataFrame) -> pd.DataFrame:
    """Return the mean of each column with its 95 % interval."""
    ends = [noise.mean_interval(turns[name]) for name in turns]
    return pd.DataFrame(ends, turns.columns, ["mean_low", "mean_high"]).assign(mean=turns.mean())


def layout_figure(turns: pd.DataFrame) -> Figure:
    """Draw the images per second of each layout, a column of `turns`: a dot per turn, their mean with its interval."""
    (axes,), rows, means = plots.panels(1, 2.4), np.arange(turns.shape[1]), mean_and_interval(turns)
    axes.plot(turns, np.broadcast_to(rows + 0.18, turns.shape), ".", color="0.6")
    axes.errorbar(means["mean"], rows, xerr=plots.error_lengths(means, "mean"), fmt="o", capsize=3,
                  color=plots.COLOURS[0], label="mean, 95 % interval")
    axes.set_yticks(rows, turns.columns)
    axes.set(xlabel="images per second, all processes together (dots: turns)", xlim=(0, None),
             ylim=(len(rows) - 0.5, -0.5))
    return plots.finish(axes)


def layout_table(runs: Runs, report: pd.DataFrame) -> pd.DataFrame:
    """Return each network's images per second on one node, as text: as one process and as two, and at full size."""
    frame = records.table(runs)
    frame = frame[(frame["steps_per_epoch"] > 0) & (frame["global_batch_size"] == 8)
                  & (frame["size"] * frame["threads"] == 2)]
    small, large = frame[frame["image_size"] < 224], frame[frame["image_size"] >= 224]
    node = report.query("experiment == 'process-thread sweep'").set_index("model")["images_per_sec"]
    rows = {}
    for model, name in [*NETWORKS.items()][:3]:
        uncut, cut = (small[(small["model"] == model) & (small["size"] == size)] for size in (1, 2))
        ratio = noise.compare(cut, uncut, "images_per_sec", ratio=True, comparisons=3)
        full = large.loc[large["model"] == model, "images_per_sec"].median()
        rows[name] = {"1 x 2": f"{noise.geometric_mean(uncut['images_per_sec']):.0f}",
                      "2 x 1": f"{noise.geometric_mean(cut['images_per_sec']):.0f}",
                      "2 x 1 over 1 x 2": f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})",
                      "full size": f"{full:.2f}", "report A, 28 cores": f"{node[name]:.1f}"}
    return pd.DataFrame(rows).T


def batch_figure(cores: pd.DataFrame, gpu: Runs, report: pd.DataFrame) -> Figure:
    """Draw images per second over the batch size: the small network here, and the networks on a GPU beside report A's.

    `cores` has a row per turn and a column per batch size.
    """
    left, right = plots.panels(2, 3.4)
    means = mean_and_interval(cores)
    left.errorbar(means.index, means["mean"], plots.error_lengths(means, "mean"), fmt="o-", capsize=3,
                  color=plots.COLOURS[5])
    left.set(title="small network, all cores", xticks=list(means.index))
    one_gpu = report.query("experiment == 'batch-size sweep'").set_index("model")["images_per_sec"]
    for (model, name), colour in zip(NETWORKS.items(), plots.COLOURS, strict=False):
        line = records.table(run for run in gpu if run["config"]["model"] == model).sort_values("batch_size")
        right.plot(line["batch_size"], line["images_per_sec"], "o-", color=colour, label=name)
        if name in one_gpu:
            right.plot(128, one_gpu[name], "s", color=colour, markerfacecolor="none", label=f"report A, {name}")
    right.set(title="one GPU, 224 pixels", xticks=[32, 64, 128])
    for axes in (left, right):
        axes.set(xlabel="batch size (images per step)", ylabel="images per second", ylim=(0, None))
    return plots.finish(right)


def needed_shares(runs: Runs, kind: Literal["weak", "strong"]) -> pd.DataFrame:
    """Return a row per link and number of nodes: the step's seconds, the speedup, and the share that the law needs.

    `compute` is the step of one node, `by_ring` Amdahl's share for a ring that uses all of the link.
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
    left, right = plots.panels(2, 3.6)
    strong, weak = (needed_shares(runs, kind).query("nodes > 1") for kind in ("strong", "weak"))
    weak = weak[weak["link"] == "100mbit"]
    links = sorted(strong["link"].unique(), key=bits_per_second)
    for link, colour in zip(links, plots.COLOURS, strict=False):
        line, name = strong[strong["link"] == link], format_bandwidth(link)
        left.plot(line["nodes"], line["share"], "o", color=colour, label=f"{name}: measured")
        left.plot(line["nodes"], line["by_ring"], "--", color=colour, label=f"{name}: $2M / (BW\\,c)$")
    left.axhline(1, color="0.4", linewidth=0.8)
    plots.set_log_ticks(left, "y", [0.1, 0.3, 1, 3, 10, 30])
    right.plot(weak["nodes"], weak["share"], "o-", color=plots.COLOURS[0], label="Gustafson's $s$")
    right.plot(weak["nodes"], 1 - weak["speedup"] / weak["nodes"], "s-", color=plots.COLOURS[1], label="$1 - E$")
    left.set(title="strong: Amdahl's $s$ (Karp-Flatt)", ylabel="s that this point needs")
    right.set(title="weak, 100 Mbit/s", ylabel="share", ylim=(0, None))
    for axes in (left, right):
        axes.set(xlabel="nodes", xticks=[2, 4, 8])
    return plots.finish_below(left, 4, [handle for axes in (left, right)
                                        for handle in axes.get_legend_handles_labels()[0]])


def fit_table(runs: Runs, exchanges: Runs, kind: Literal["weak", "strong"]) -> pd.DataFrame:
    """Return the speedup over links of 100 Mbit/s as measured and by three models, each with its relative residual.

    `law` is Amdahl's or Gustafson's, fitted to these points. The ring and lab 5's model are not fitted: they compute
    on CORES shared cores, and send the ring's bytes over the whole link, or over the share that lab 5 reached.
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
