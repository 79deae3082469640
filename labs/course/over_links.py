"""Tables and figures of runs over links of several bandwidths: all-reduces and predicted steps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from labs.course import plots, transports
from labs.results import link_model
from labs.run.cluster_state import bits_per_second
from labs.run.errors import LabError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def shares(runs: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Return a row per run and bandwidth: the share of the link's bandwidth that the largest all-reduce reaches.

    `bytes_over_ring`: the bytes that a node sends for it, divided by those that a ring needs.

    Args:
        runs: Records of lab 5's study "links".

    Raises:
        LabError: There are none.
    """
    rows = _rows(runs, "links")
    nominal = rows["bandwidth"].map(bits_per_second) / 1e6
    return rows.assign(megabits=nominal, share=rows["megabits_per_sec"] / nominal,
                       fitted_share=rows["fitted_megabits_per_sec"] / nominal,
                       bytes_over_ring=rows["sent_bytes"] / rows["predicted_bytes"])


def cells(runs: Sequence[dict[str, Any]], table: str = "cells") -> pd.DataFrame:
    """Return a row per predicted and measured step of some runs, with `link` in megabits per second.

    Args:
        runs: Records of lab 11's study "bandwidth".
        table: "cells", or "compressed" for gradients in half precision.

    Raises:
        LabError: There are none.
    """
    rows = _rows(runs, table)
    return rows.assign(link=rows["bandwidth"].map(bits_per_second) / 1e6,
                       window_seconds=rows["computed_seconds"] - rows["ready_seconds"])


def _rows(runs: Sequence[dict[str, Any]], table: str) -> pd.DataFrame:
    """Return the rows of a table of some runs, each with its run's number of nodes and its backend."""
    import pandas as pd

    rows = [{"nodes": run["layout"]["nodes"], "backend": run["layout"]["backend"]} | row
            for run in runs for row in run.get("tables", {}).get(table, ())]
    if not rows:
        raise LabError(f"no run has a table {table!r}; make one with `labs cluster sweep LAB --preset cluster`")
    return pd.DataFrame(rows).sort_values(["nodes", "backend"], kind="stable", ignore_index=True)


def share_figure(runs: Sequence[dict[str, Any]]) -> Figure:
    """Draw the share of the link that an all-reduce uses over the link's bandwidth; a panel per backend.

    Args:
        runs: Records of lab 5's study "links".
    """
    rows = shares(runs)
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


def time_figure(runs: Sequence[dict[str, Any]], nodes: int) -> Figure:
    """Draw the time of an all-reduce over its bytes, per bandwidth: points are measured, lines are the fitted ring.

    The ring of n nodes: 2 (n - 1) (alpha + bytes / (n bandwidth)).

    Args:
        runs: Records of lab 5's study "links", of one backend.
        nodes: Number of nodes whose runs are plotted.
    """
    from matplotlib import colormaps

    run = next(run for run in runs if run["layout"]["nodes"] == nodes)
    library = f"Horovod over {run['layout']['backend']}"
    points = _rows([run], "over_links").query("library == @library")
    axes, links = plots.empty(6.4, 3.8).subplots(), list(points.groupby("bandwidth", sort=False))
    colours = colormaps["viridis"](np.linspace(0, 0.9, len(links)))  # From slow to fast.
    for colour, (bandwidth, rows) in zip(colours, links, strict=True):
        axes.plot(rows["bytes"], 1e3 * rows["seconds"], "o", color=colour, markersize=4, label=_with_unit(bandwidth))
        sizes = np.geomspace(link_model.SMALLEST, rows["bytes"].max())
        link = link_model.fit(rows.to_dict("records"), nodes)
        axes.plot(sizes, [1e3 * link.allreduce_seconds(size, nodes) for size in sizes], color=colour, linewidth=1)
    axes.set(xscale="log", yscale="log", xlabel="message (bytes)", ylabel="all-reduce (ms)",
             title=f"{nodes} nodes, {library}")
    return plots.finished(axes, title="each link")


def _with_unit(bandwidth: str) -> str:
    """Return "100 Mbit/s" for "100mbit"."""
    return re.sub(r"^([\d.]+)([a-z])bit$", lambda match: f"{match[1]} {match[2].upper()}bit/s", bandwidth)


def crossover_figure(runs: Sequence[dict[str, Any]]) -> Figure:
    """Draw the speedup of two nodes over the model's parameters at the same global batch, a line per bandwidth.

    Args:
        runs: Records of lab 7's sweep "links".
    """
    rows = transports.compare(runs)
    rows = rows[rows["size"] > 1].dropna(subset=["speedup"])
    axes = plots.empty(7.2, 3.6).subplots()
    for colour, link in zip(plots.COLOURS, sorted(rows["link"].unique(), key=bits_per_second), strict=False):
        line = rows[rows["link"] == link].sort_values("parameters")
        ends = [(line[f"speedup_{end}"] - line["speedup"]).abs().fillna(0) for end in ("low", "high")]
        axes.errorbar(line["parameters"], line["speedup"], ends, fmt="-o", color=colour, capsize=3, markersize=4,
                      label=link)
    axes.axhline(1, color="0.4", linestyle=":", label="one node")
    axes.set(xscale="log", ylim=(0, None), xlabel="parameters", ylabel="speedup of two nodes over one")
    return plots.finished(axes, title="each link")


def summary(runs: Sequence[dict[str, Any]]) -> str:
    """Return what the studies over links have found, as text; an empty string if there are no such runs.

    Args:
        runs: Records of lab 5 or lab 11.
    """
    text = []
    if any("links" in run.get("tables", {}) for run in runs):
        columns = ["backend", "nodes", "bandwidth", "megabits_per_sec", "share", "latency_ms", "bytes_over_ring"]
        text.append("All-reduces over links\n" + shares(runs)[columns].round(2).to_string(index=False))
    if any("cells" in run.get("tables", {}) for run in runs):
        rows = cells(runs).to_dict("records")
        text.append("\n".join([f"{len(rows)} steps predicted before they were measured:",
                               _judged(link_model.errors(rows), "as predicted"),
                               _judged(link_model.errors(rows, "predicted_in_turn_seconds"),
                                       "with the computation timed in turns with the step")]))
    return "\n\n".join(text)


def _judged(errors: dict[str, float], what: str) -> str:
    return (f"{what}: median error {errors['median']:.1%}, {errors['within_15']:.0%} within 15 %, "
            f"largest {errors['largest']:.0%}")
