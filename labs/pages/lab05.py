"""Page 5: all-reduces by hand and over links of several bandwidths, steps over time, and predicted steps."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from labs.pages import plots
from labs.pages.plots import Runs
from labs.results import link_model
from labs.run.cluster_state import bits_per_second

Bar = tuple[str, float, float]
"""A computation or an all-reduce in a step over time: text, began, ended."""


class RingState(NamedTuple):
    """Each rank's values [ranks, elements, ...] after a step of a ring all-reduce, and the bytes that it has sent."""

    values: np.ndarray
    sent_bytes: np.ndarray


def ring_steps(values: Sequence[ArrayLike]) -> list[RingState]:
    """Return the states of a ring all-reduce that sums one array per rank: the start, then one per step.

    Each rank cuts its array into N chunks, along the first axis. Reduce-scatter: in each of N - 1 steps every rank
    sends a chunk to the next rank, which adds it to its own. Then rank r holds the sum of chunk r + 1 over all ranks.
    All-gather: in N - 1 more steps the complete chunks go round. Source: Patarasuk and Yuan, "Bandwidth optimal
    all-reduce algorithms for clusters of workstations", JPDC 69(2), 2009.
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


def time_table(runs: Runs, bandwidth: str, nodes: int = 2) -> pd.DataFrame:
    """Return the milliseconds of all-reduces over MPI and one link, a row per size in bytes, a column per library."""
    rows = allreduces(runs).query("bandwidth == @bandwidth and nodes == @nodes and backend == 'MPI'")
    return 1e3 * rows.pivot(index="bytes", columns="library", values="seconds")


def time_figure(table: pd.DataFrame, latency: float, per_byte: float, title: str) -> Figure:
    """Draw the milliseconds of an all-reduce over its bytes: of `time_table`, and latency + per_byte x bytes."""
    (axes,), sizes = plots.panels(1, 3.6, 6.4), np.geomspace(table.index.min(), table.index.max(), 200)
    for colour, marker, (library, ms) in zip(plots.COLOURS, ("o", "x"), table.items(), strict=False):
        axes.plot(table.index, ms, marker, color=colour, markersize=7, label=library)
    axes.plot(sizes, latency + per_byte * sizes, color="0.3", linewidth=1, label=r"$2\alpha + \beta M$")
    axes.set(xscale="log", yscale="log", xlabel="array M (bytes)", ylabel="all-reduce (ms)", title=title)
    return plots.finish(axes)


def link_shares(runs: Runs) -> pd.DataFrame:
    """Return the share of each link that the largest all-reduce uses, and its bytes over a ring's."""
    rows = rows_of(runs, "links")
    nominal = rows["bandwidth"].map(bits_per_second) / 1e6
    return rows.assign(megabits=nominal, share=rows["megabits_per_sec"] / nominal,
                       bytes_over_ring=rows["sent_bytes"] / rows["predicted_bytes"])


def share_figure(runs: Runs) -> Figure:
    """Draw the share of the link that an all-reduce uses over the link's bandwidth; a panel per backend."""
    rows = link_shares(runs)
    backends = sorted(rows["backend"].unique(), reverse=True)
    row = plots.panels(len(backends), 3.2, sharey=True)
    for axes, backend in zip(row, backends, strict=True):
        same = rows[rows["backend"] == backend]
        for colour, (nodes, line) in zip(plots.COLOURS, same.groupby("nodes"), strict=False):
            axes.plot(line["megabits"], line["share"], "-o", color=colour, markersize=4, label=f"{nodes} nodes")
        axes.axhline(1, color="0.4", linestyle=":", label="the link")
        axes.set(xscale="log", xlabel="bandwidth of each link (Mbit/s)", title=f"over {backend}", ylim=(0, 1.1))
    row[0].set_ylabel("bus bandwidth / link")
    return plots.finish(row[-1])


def time_call(text: str, call: Callable[..., Any], *values: Any) -> Bar:
    """Call a function with some values, and return its bar (text, began, ended), in seconds of this machine's clock."""
    began = time.perf_counter()
    call(*values)
    return text, began, time.perf_counter()


def median_step(steps: Sequence[Sequence[Sequence[Bar]]]) -> list[list[Bar]]:
    """Return each rank's bars of the step (by rank, by step) of median length, in milliseconds since its beginning."""
    together = list(zip(*steps, strict=True))
    edges = [(min(bar[1] for rank in step for bar in rank), max(bar[2] for rank in step for bar in rank))
             for step in together]
    middle = sorted(range(len(edges)), key=lambda number: edges[number][1] - edges[number][0])[len(edges) // 2]
    began = edges[middle][0]
    return [[(text, 1e3 * (start - began), 1e3 * (end - began)) for text, start, end in rank]
            for rank in together[middle]]


def step_figure(steps: Mapping[str, Sequence[Sequence[Bar]]]) -> Figure:
    """Draw steps of all ranks over time: computations in the rank's colour, below them its all-reduces, a line each.

    `steps` has, by title, each rank's bars from `median_step`; an all-reduce's text begins with "all-reduce".
    """
    lanes = sum(len(ranks) for ranks in steps.values())
    figure = plots.empty(9, 0.7 + 0.6 * len(steps) + 0.55 * lanes)
    row = figure.subplots(len(steps), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (title, ranks) in zip(row, steps.items(), strict=True):
        for rank, bars in enumerate(ranks):
            _draw_rank(axes, rank, bars)
        length = max(bar[2] for bars in ranks for bar in bars)
        axes.set_title(f"{title}: {length:.0f} ms", fontsize=10, loc="left")
        axes.set_yticks(range(len(ranks)), [f"rank {rank}" for rank in range(len(ranks))])
        axes.set(ylim=(len(ranks) - 0.45, -0.55))
    row[-1].set_xlabel("milliseconds since the step began (dark: all-reduces, one line per layer)")
    return figure


def _draw_rank(axes: Axes, rank: int, bars: Sequence[Bar]) -> None:
    lines = 0
    high = 0.4 / max(1, sum(text.startswith("all-reduce") for text, *_ in bars))
    for text, began, ended in bars:
        if text.startswith("all-reduce"):
            axes.barh(rank + 0.02 + (lines + 0.5) * high, ended - began, high, began, color="0.35",
                      **plots.EDGE)
            lines += 1
        else:
            axes.barh(rank - 0.2, ended - began, 0.4, began, color=plots.RANK_COLOURS[rank], **plots.EDGE)
            axes.text((began + ended) / 2, rank - 0.2, text, ha="center", va="center", fontsize=8,
                      color="black" if rank else "white")  # Rank 0 is dark blue.


def predict_other_links(runs: Runs) -> pd.DataFrame:
    """Return the steps over links between the slowest and the fastest, predicted without any run over that link.

    `error` is relative, and `error_in_turn` has the machine's speed during the measurement.
    """
    return rows_of([run | {"tables": {"unseen": _predict(run)}} for run in runs if "cells" in run["tables"]], "unseen")


def _predict(run: dict[str, Any]) -> list[dict[str, Any]]:
    n, tables = run["layout"]["size"], run["tables"]
    measured = [row for row in tables["over_links"] if row["library"].startswith("Horovod")]
    unlimited, busy = (link_model.fit([row for row in measured if row["bandwidth"] == name], n)
                       for name in ("unlimited", "busy"))
    links = sorted({cell["bandwidth"] for cell in tables["cells"]}, key=bits_per_second)
    rows = []
    for cell in (cell for cell in tables["cells"] if cell["bandwidth"] in links[1:-1]):
        others = [row | {"bits_per_second": bits_per_second(row["bandwidth"])} for row in measured
                  if row["bandwidth"] not in (cell["bandwidth"], "busy")]
        link = link_model.between(others, n, bits_per_second(cell["bandwidth"]))
        before, in_turn = (link_model.step(cell, n, link, unlimited, busy, alone)
                           for alone in (None, cell["alone_in_turn_seconds"]))
        rows.append(cell | link_model.parts(cell, n, link, unlimited, busy) | {
            "unseen_seconds": before, "error": before / cell["step_seconds"] - 1,
            "error_in_turn": in_turn / cell["step_seconds"] - 1})
    return rows


def prediction_figure(table: pd.DataFrame) -> Figure:
    """Draw how far each step of `predict_other_links` was from its prediction; a colour per number of nodes."""
    (axes,) = plots.panels(1, 3.4, 7.6)
    axes.axhspan(-5, 5, color="0.92", zorder=0)
    axes.axhline(0, color="0.4", linewidth=0.9)
    for colour, (nodes, rows) in zip(plots.COLOURS, table.groupby("nodes"), strict=False):
        axes.plot(1e3 * rows["unseen_seconds"], 100 * rows["error"], "o", color=colour, label=f"{nodes} nodes")
    axes.set(xscale="log", xlabel="predicted step (ms)", ylabel="predicted / measured - 1 (%)")
    return plots.finish(axes)


def table_by_nodes(runs: Runs, bandwidth: str) -> pd.DataFrame:
    """Return the milliseconds of Horovod's smallest, a middle and the largest all-reduce, by backend and nodes."""
    rows = allreduces(runs).query("bandwidth == @bandwidth and library.str.startswith('Horovod')")
    names = {rows["bytes"].max(): "4 MiB", 2**18: "256 KiB"} | {4 * n: "4 bytes per node" for n in range(16)}
    table = rows.assign(size=rows["bytes"].map(names), ms=1e3 * rows["seconds"]).dropna(subset="size")
    table = table.pivot(index=["size", "nodes"], columns="backend", values="ms")
    return table.reindex(["4 bytes per node", "256 KiB", "4 MiB"], level="size")


def rows_of(runs: Runs, table: str) -> pd.DataFrame:
    """Return the rows of a table of some runs, each with its run's number of nodes and its backend."""
    rows = [{"nodes": run["layout"]["nodes"], "backend": run["layout"]["backend"]} | row
            for run in runs for row in run["tables"].get(table, ())]
    return pd.DataFrame(rows).sort_values(["nodes", "backend"], kind="stable", ignore_index=True)


def allreduces(runs: Runs) -> pd.DataFrame:
    """Return the all-reduces of the runs of study "links"; those of "bandwidth" have other sizes and cycles."""
    return rows_of([run for run in runs if "links" in run["tables"]], "over_links")
