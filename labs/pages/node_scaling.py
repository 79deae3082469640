"""Scaling over nodes against its models: Amdahl's and Gustafson's laws, a ring, and lab 5's model of the link."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from labs.pages import laws, layouts, over_links, plots
from labs.results import cost_model
from labs.run.cluster_state import bits_per_second, format_bandwidth

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Runs = Sequence[dict[str, Any]]
CORES = 2
"""The cores of the machine that all nodes of the reference runs share."""


def points(runs: Runs, kind: Literal["weak", "strong"]) -> pd.DataFrame:
    """Return a row per link and number of nodes: the step's seconds, the speedup, and the share that the law needs.

    `compute` is the step of one node, `share` is Amdahl's s in strong scaling (the Karp-Flatt metric) and Gustafson's
    in weak scaling, and `by_ring` is Amdahl's s of a ring that uses all of the link.

    Args:
        runs: Records of lab 11's sweeps over links, one worker on each node.
        kind: "strong" holds the global batch, "weak" the batch of a node.
    """
    frame = layouts.table(layouts.trained(runs))
    scaled = layouts.scaled(frame, kind).sort_values(["link", "nodes"])
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


def fits(runs: Runs, exchanges: Runs, kind: Literal["weak", "strong"], link: str = "100mbit") -> pd.DataFrame:
    """Return the speedup on each number of nodes as measured and by three models, each with its relative residual.

    `law` is Amdahl's in strong and Gustafson's in weak scaling, fitted to these points (least squares, without the
    bound s <= 1). The ring and lab 5's model are not fitted: their step is its computation on CORES shared cores, and
    the seconds of the ring's bytes on the whole link, or on the share of it that lab 5's all-reduces reached.

    Args:
        runs: Records of lab 11's sweeps over links.
        exchanges: Records of lab 5's study "links".
        kind: "strong" for Amdahl's law, "weak" for Gustafson's.
        link: The bandwidth of each link.
    """
    rows = points(runs, kind).query("link == @link and nodes > 1").set_index("nodes")
    n, speedup = rows.index.to_numpy(float), rows["speedup"].to_numpy()
    fitted = laws.amdahl(n, laws.slope(1 - 1 / n, 1 / speedup - 1 / n)) if kind == "strong" else (
        laws.gustafson(n, laws.slope(n - 1, n - speedup)))
    shares = over_links.shares(exchanges).query("backend == 'MPI' and bandwidth == @link").set_index("nodes")["share"]
    table = rows[["speedup"]].rename(columns={"speedup": "measured"})
    table["law"] = fitted
    for name, reached in (("ring", 1.0), ("lab 5", shares.reindex(rows.index))):
        table[name] = _predicted(rows.assign(bandwidth=rows["bandwidth"] * reached), kind)
    for name in table.columns[1:]:
        table[f"{name}, residual"] = table[name] / table["measured"] - 1
    return table


def _predicted(rows: pd.DataFrame, kind: str) -> list[float]:
    """Return the speedup of each row: its computation on shared cores, then a ring without latency."""
    speedups = []
    for n, row in rows.iterrows():
        images = n if kind == "weak" else 1  # In units of one node's step.
        step = row["compute"] * images / min(n, CORES) + cost_model.ring_seconds(row["nbytes"], n, 0, row["bandwidth"])
        speedups.append(images * row["compute"] / step)
    return speedups


def share_figure(runs: Runs) -> Figure:
    """Draw the share s that each point needs over the number of nodes: Amdahl's by link, Gustafson's beside 1 - E.

    Args:
        runs: Records of lab 11's sweeps over links.
    """
    figure = plots.empty(9, 3.6)
    left, right = figure.subplots(1, 2)
    strong, weak = points(runs, "strong"), points(runs, "weak").query("link == '100mbit' and nodes > 1")
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
