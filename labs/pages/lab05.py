"""Page 5: all-reduces by hand and over links of several bandwidths, steps over time, and predicted steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from labs.pages import plots
from labs.results import cost_model, link_model
from labs.run.cluster_state import bits_per_second
from labs.run.errors import LabError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

Runs = Sequence[dict[str, Any]]
Bar = tuple[str, float, float]
"""A computation or an all-reduce in a step over time: text, began, ended."""
LATENCY, BANDWIDTH = 50e-6, 1.25e9
"""Of the link of `topology_seconds`: seconds of an empty message, and bytes per second (10 Gbit/s)."""


# All-reduces by hand.

class RingState(NamedTuple):
    """What all ranks hold after a step of a ring all-reduce."""

    values: np.ndarray
    """Each rank's values, [ranks, elements, ...]."""
    sent_bytes: np.ndarray
    """Bytes that each rank has sent until now, [ranks]."""


def ring_steps(values: Sequence[ArrayLike]) -> list[RingState]:
    """Return the states of a ring all-reduce that sums one array per rank: the start, then one per step.

    Each rank cuts its array into N chunks. Reduce-scatter: in each of N - 1 steps every rank sends a chunk to the next
    rank, which adds it to its own. Then rank r holds the sum of chunk r + 1 over all ranks. All-gather: in N - 1 more
    steps the complete chunks go round, and replace what the receiver held. Source: Patarasuk and Yuan, "Bandwidth
    optimal all-reduce algorithms for clusters of workstations", JPDC 69(2), 2009.

    Args:
        values: An array of numbers per rank, all of the same shape; they are cut along their first axis.
    """
    array = np.array(values)
    n = len(array)
    chunks = np.array_split(np.arange(array.shape[1]), n)
    sent = np.zeros(n, int)
    states = [RingState(array.copy(), sent.copy())]
    for step in range(2 * (n - 1)):
        for rank in range(n):  # All send at the same time; no rank sends the chunk that it receives.
            where = (rank + 1) % n, chunks[(rank - step) % n]
            message = array[rank, where[1]]
            array[where] = message if step >= n - 1 else array[where] + message
            sent[rank] += message.nbytes
        states.append(RingState(array.copy(), sent.copy()))
    return states


def topology_seconds(nbytes: float, n: int = 8) -> pd.Series:
    """Return the seconds of four all-reduces of n ranks by `cost_model`'s formulas; n is a power of two."""
    import pandas as pd

    costs = {"naive": cost_model.naive_seconds, "tree": cost_model.tree_seconds, "ring": cost_model.ring_seconds,
             "halving-doubling": cost_model.halving_seconds}
    seconds = {name: cost(nbytes, n, LATENCY, BANDWIDTH) for name, cost in costs.items()}
    return pd.Series(seconds).rename_axis("topology")


# All-reduces over links.

def time_table(runs: Runs, bandwidth: str, nodes: int = 2, backend: str = "MPI") -> pd.DataFrame:
    """Return the milliseconds of lab 5's all-reduces over one link, a row per size in bytes, a column per library."""
    rows = allreduces(runs).query("bandwidth == @bandwidth and nodes == @nodes and backend == @backend")
    return 1e3 * rows.pivot(index="bytes", columns="library", values="seconds")


def time_figure(table: pd.DataFrame, latency: float, per_byte: float, title: str) -> Figure:
    """Draw the time of an all-reduce over its bytes: points are measured, the line is latency + per_byte x bytes.

    Args:
        table: From `time_table`.
        latency: Milliseconds of an empty all-reduce.
        per_byte: Milliseconds per byte of an all-reduce.
        title: Of the figure.
    """
    axes, sizes = plots.empty(6.4, 3.6).subplots(), np.geomspace(table.index.min(), table.index.max(), 200)
    for colour, marker, (library, ms) in zip(plots.COLOURS, ("o", "x"), table.items(), strict=False):
        axes.plot(table.index, ms, marker, color=colour, markersize=7, label=library)
    axes.plot(sizes, latency + per_byte * sizes, color="0.3", linewidth=1, label=r"$2\alpha + \beta M$")
    axes.set(xscale="log", yscale="log", xlabel="array M (bytes)", ylabel="all-reduce (ms)", title=title)
    return plots.finish(axes)


def link_shares(runs: Runs) -> pd.DataFrame:
    """Return a row per run and bandwidth: the share of the link's bandwidth that the largest all-reduce reaches.

    `bytes_over_ring`: the bytes that a node sends for it, divided by those that a ring needs.
    """
    rows = rows_of(runs, "links")
    nominal = rows["bandwidth"].map(bits_per_second) / 1e6
    return rows.assign(megabits=nominal, share=rows["megabits_per_sec"] / nominal,
                       bytes_over_ring=rows["sent_bytes"] / rows["predicted_bytes"])


def share_figure(runs: Runs) -> Figure:
    """Draw the share of the link that an all-reduce uses over the link's bandwidth; a panel per backend."""
    rows = link_shares(runs)
    backends = sorted(rows["backend"].unique(), reverse=True)
    figure = plots.empty(9, 3.2)
    for axes, backend in zip(figure.subplots(1, len(backends), sharey=True, squeeze=False)[0], backends, strict=True):
        same = rows[rows["backend"] == backend]
        for colour, (nodes, line) in zip(plots.COLOURS, same.groupby("nodes"), strict=False):
            axes.plot(line["megabits"], line["share"], "-o", color=colour, markersize=4, label=f"{nodes} nodes")
        axes.axhline(1, color="0.4", linestyle=":", label="the link")
        axes.set(xscale="log", xlabel="bandwidth of each link (Mbit/s)", title=f"over {backend}", ylim=(0, 1.1))
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("bus bandwidth / link")
    figure.axes[-1].legend(fontsize=8, **plots.BESIDE)
    return figure


# A step over time.

def time_call(text: str, call: Callable[..., Any], *values: Any) -> Bar:
    """Call a function with some values, and return its bar (text, began, ended), in seconds of this machine's clock."""
    began = time.perf_counter()
    call(*values)
    return text, began, time.perf_counter()


def median_step(steps: Sequence[Sequence[Sequence[Bar]]]) -> list[list[Bar]]:
    """Return each rank's bars of the step of median length, in milliseconds since its first bar began.

    Args:
        steps: By rank, by step: the bars, in seconds of one clock.
    """
    together = list(zip(*steps, strict=True))
    edges = [(min(bar[1] for rank in step for bar in rank), max(bar[2] for rank in step for bar in rank))
             for step in together]
    middle = sorted(range(len(edges)), key=lambda number: edges[number][1] - edges[number][0])[len(edges) // 2]
    began = edges[middle][0]
    return [[(text, 1e3 * (start - began), 1e3 * (end - began)) for text, start, end in rank]
            for rank in together[middle]]


def step_figure(steps: Mapping[str, Sequence[Sequence[Bar]]]) -> Figure:
    """Draw steps of all ranks over time: computations in the rank's colour, below them its all-reduces.

    Args:
        steps: By title: each rank's bars in milliseconds, from `median_step`. An all-reduce's text begins with
            "all-reduce".
    """
    lanes = sum(len(ranks) for ranks in steps.values())
    figure = plots.empty(9, 0.7 + 0.6 * len(steps) + 0.55 * lanes)
    panels = figure.subplots(len(steps), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (title, ranks) in zip(panels, steps.items(), strict=True):
        for rank, bars in enumerate(ranks):
            _draw_rank(axes, rank, bars)
        length = max(bar[2] for bars in ranks for bar in bars)
        axes.set_title(f"{title}: {length:.0f} ms", fontsize=10, loc="left")
        axes.set_yticks(range(len(ranks)), [f"rank {rank}" for rank in range(len(ranks))])
        axes.set(ylim=(len(ranks) - 0.45, -0.55))
        axes.grid(axis="x", alpha=0.3)
        axes.set_axisbelow(True)
    panels[-1].set_xlabel("milliseconds since the step began (dark: all-reduces, one line per layer)")
    figure.set_layout_engine("constrained", w_pad=0.1, h_pad=0.1)  # In inches.
    return figure


def _draw_rank(axes: Axes, rank: int, bars: Sequence[Bar]) -> None:
    """Draw a rank's computations, and below them its all-reduces, a line each."""
    exchanges = [bar for bar in bars if bar[0].startswith("all-reduce")]
    for text, began, ended in bars:
        if text.startswith("all-reduce"):
            high = 0.4 / len(exchanges)
            y = rank + 0.02 + (exchanges.index((text, began, ended)) + 0.5) * high
            axes.barh(y, ended - began, high, began, color="0.35", edgecolor="black", linewidth=0.5)
        else:
            axes.barh(rank - 0.2, ended - began, 0.4, began, color=plots.RANK_COLOURS[rank], edgecolor="black",
                      linewidth=0.5)
            axes.text((began + ended) / 2, rank - 0.2, text, ha="center", va="center", fontsize=8,
                      color="black" if rank else "white")  # Rank 0 is dark blue.


# Steps that are predicted.

def predict_other_links(runs: Runs) -> pd.DataFrame:
    """Return the steps over links between the slowest and the fastest, predicted without any run over that link.

    `unseen_seconds` is the prediction with the link's constants from `link_model.between`, `error` its relative error,
    and `error_in_turn` that of the prediction for the machine's speed during the measurement. `processor`, `wire` and
    `window` are the seconds of `link_model.parts`.

    Args:
        runs: Records of lab 5's study "bandwidth".
    """
    return rows_of([run | {"tables": {"unseen": _predict(run)}} for run in runs if "cells" in run["tables"]], "unseen")


def _predict(run: dict[str, Any]) -> list[dict[str, Any]]:
    n, tables = run["layout"]["size"], run["tables"]
    measured = [row for row in tables["over_links"] if row["library"].startswith("Horovod")]
    by_link = {name: [row for row in measured if row["bandwidth"] == name] for name in ("unlimited", "busy")}
    unlimited, busy = (link_model.fit(rows, n) for rows in by_link.values())
    links = sorted({cell["bandwidth"] for cell in tables["cells"]}, key=bits_per_second)
    rows = []
    for cell in (cell for cell in tables["cells"] if cell["bandwidth"] in links[1:-1]):
        others = [row | {"bits_per_second": bits_per_second(row["bandwidth"])} for row in measured
                  if row["bandwidth"] not in (cell["bandwidth"], "busy")]
        link = link_model.between(others, n, bits_per_second(cell["bandwidth"]))
        before, in_turn = (link_model.step(cell, n, link, unlimited, busy, alone)
                           for alone in (None, cell["alone_in_turn_seconds"]))
        step = cell["step_seconds"]
        rows.append(cell | link_model.parts(cell, n, link, unlimited, busy) | {
            "unseen_seconds": before, "error": before / step - 1, "error_in_turn": in_turn / step - 1})
    return rows


def prediction_figure(table: pd.DataFrame) -> Figure:
    """Draw how far each step of `predict_other_links` was from its prediction; a colour per number of nodes."""
    axes = plots.empty(7.6, 3.4).subplots()
    axes.axhspan(-5, 5, color="0.92", zorder=0)
    axes.axhline(0, color="0.4", linewidth=0.9)
    for colour, (nodes, rows) in zip(plots.COLOURS, table.groupby("nodes"), strict=False):
        axes.plot(1e3 * rows["unseen_seconds"], 100 * rows["error"], "o", color=colour, label=f"{nodes} nodes")
    axes.set(xscale="log", xlabel="predicted step (ms)", ylabel="predicted / measured - 1 (%)")
    return plots.finish(axes)


def prediction_text(table: pd.DataFrame) -> str:
    """Return how well the steps of `predict_other_links` were predicted, and what is known where they were not."""
    by_nodes = table.groupby("nodes")
    median = by_nodes[["error", "error_in_turn"]].agg(lambda errors: errors.abs().median())
    text = [f"{len(table)} steps, each over a link left out of the fit. Median error: " + ", ".join(
        f"{100 * error:.1f} % on {nodes} nodes" for nodes, error in median["error"].items())
        + f"; the largest is {100 * table['error'].abs().max():.0f} %."]
    for nodes, rows in by_nodes:
        in_turn = median["error_in_turn"][nodes]
        if median["error"][nodes] >= 0.05:
            text.append(f"**On {nodes} nodes the model fails**: {(rows['error'] < 0).sum()} of {len(rows)} steps took "
                        f"longer than predicted, {'and not ' if in_turn >= 0.05 else ''}because the machine's speed "
                        f"changed ({100 * in_turn:.1f} % with the computation timed alternately).")
    return " ".join(text)


def table_by_nodes(runs: Runs, bandwidth: str) -> pd.DataFrame:
    """Return the milliseconds of Horovod's smallest, a middle and the largest all-reduce, by backend and nodes."""
    rows = allreduces(runs).query("bandwidth == @bandwidth and library.str.startswith('Horovod')")
    names = {rows["bytes"].max(): "4 MiB", 2**18: "256 KiB"}
    size = [names.get(count, "4 bytes per node" if count < 64 else None) for count in rows["bytes"]]
    table = rows.assign(size=size, ms=1e3 * rows["seconds"]).dropna(subset="size")
    table = table.pivot(index=["size", "nodes"], columns="backend", values="ms")
    return table.reindex(["4 bytes per node", "256 KiB", "4 MiB"], level="size")


def rows_of(runs: Runs, table: str) -> pd.DataFrame:
    """Return the rows of a table of some runs, each with its run's number of nodes and its backend.

    Raises:
        LabError: No run has this table.
    """
    import pandas as pd

    rows = [{"nodes": run["layout"]["nodes"], "backend": run["layout"]["backend"]} | row
            for run in runs for row in run.get("tables", {}).get(table, ())]
    if not rows:
        raise LabError(f"no run has a table {table!r}; make one with `labs cluster sweep LAB --preset cluster`")
    return pd.DataFrame(rows).sort_values(["nodes", "backend"], kind="stable", ignore_index=True)


def allreduces(runs: Runs) -> pd.DataFrame:
    """Return the all-reduces of the runs of study "links"; those of "bandwidth" have other sizes and cycles."""
    return rows_of([run for run in runs if "links" in run.get("tables", {})], "over_links")
