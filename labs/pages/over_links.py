"""Tables and figures of runs over links of several bandwidths: all-reduces, predicted steps, a second node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from labs.pages import plots
from labs.results import link_model, noise
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
        LabError: The runs have no such measurement.
    """
    rows = _rows(runs, "links")
    nominal = rows["bandwidth"].map(bits_per_second) / 1e6
    return rows.assign(megabits=nominal, share=rows["megabits_per_sec"] / nominal,
                       fitted_share=rows["fitted_megabits_per_sec"] / nominal,
                       bytes_over_ring=rows["sent_bytes"] / rows["predicted_bytes"])


def cells(runs: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Return a row per predicted and measured step of some runs.

    Args:
        runs: Records of lab 5's study "bandwidth" (lab 11's until November 2026).

    Raises:
        LabError: The runs have no such measurement.
    """
    return _rows(runs, "cells")


def _rows(runs: Sequence[dict[str, Any]], table: str) -> pd.DataFrame:
    """Return the rows of a table of some runs, each with its run's number of nodes and its backend."""
    import pandas as pd

    rows = [{"nodes": run["layout"]["nodes"], "backend": run["layout"]["backend"]} | row
            for run in runs for row in run.get("tables", {}).get(table, ())]
    if not rows:
        raise LabError(f"no run has a table {table!r}; make one with `labs cluster sweep LAB --preset cluster`")
    return pd.DataFrame(rows).sort_values(["nodes", "backend"], kind="stable", ignore_index=True)


def _allreduces(runs: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Return the all-reduces of the runs of study "links"; those of "bandwidth" have other sizes and cycles."""
    return _rows([run for run in runs if "links" in run.get("tables", {})], "over_links")


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


def times(runs: Sequence[dict[str, Any]], bandwidth: str, nodes: int = 2, backend: str = "MPI") -> pd.DataFrame:
    """Return the milliseconds of all-reduces over one link, a row per size in bytes, a column per library.

    Args:
        runs: Records of lab 5's study "links".
        bandwidth: Of the link, such as "100mbit".
        nodes, backend: Of the run.
    """
    rows = _allreduces(runs).query("bandwidth == @bandwidth and nodes == @nodes and backend == @backend")
    return 1e3 * rows.pivot(index="bytes", columns="library", values="seconds")


def time_figure(table: pd.DataFrame, latency: float, per_byte: float, title: str) -> Figure:
    """Draw the time of an all-reduce over its bytes: points are measured, the line is latency + per_byte x bytes.

    Args:
        table: From `times`.
        latency: Milliseconds of an empty all-reduce.
        per_byte: Milliseconds per byte of an all-reduce.
        title: Of the figure.
    """
    axes, sizes = plots.empty(6.4, 3.6).subplots(), np.geomspace(table.index.min(), table.index.max(), 200)
    for colour, marker, (library, ms) in zip(plots.COLOURS, ("o", "x"), table.items(), strict=False):
        axes.plot(table.index, ms, marker, color=colour, markersize=7, label=library)
    axes.plot(sizes, latency + per_byte * sizes, color="0.3", linewidth=1, label=r"$2\alpha + \beta M$")
    axes.set(xscale="log", yscale="log", xlabel="array M (bytes)", ylabel="all-reduce (ms)", title=title)
    axes.grid(alpha=0.3)
    return plots.finished(axes)


def by_nodes(runs: Sequence[dict[str, Any]], bandwidth: str) -> pd.DataFrame:
    """Return the milliseconds of Horovod's smallest, a middle and the largest all-reduce, by backend and nodes.

    Args:
        runs: Records of lab 5's study "links".
        bandwidth: Of the link, such as "100mbit".
    """
    rows = _allreduces(runs).query("bandwidth == @bandwidth and library.str.startswith('Horovod')")
    names = {rows["bytes"].max(): "4 MiB", 2**18: "256 KiB"}
    size = [names.get(count, "4 bytes per node" if count < 64 else None) for count in rows["bytes"]]
    table = rows.assign(size=size, ms=1e3 * rows["seconds"]).dropna(subset="size")
    table = table.pivot(index=["size", "nodes"], columns="backend", values="ms")
    return table.reindex(["4 bytes per node", "256 KiB", "4 MiB"], level="size")


def unseen(runs: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Return the steps over links between the slowest and the fastest, predicted without any run over that link.

    `unseen_seconds` is the prediction with the link's constants from `link_model.between`, `error` its relative error,
    and `error_in_turn` that of the prediction for the machine's speed during the measurement. `processor`, `wire` and
    `window` are the seconds of `link_model.parts`.

    Args:
        runs: Records of lab 5's study "bandwidth".
    """
    return _rows([run | {"tables": {"unseen": _unseen(run)}} for run in runs if "cells" in run["tables"]], "unseen")


def _unseen(run: dict[str, Any]) -> list[dict[str, Any]]:
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


def verdict(table: pd.DataFrame) -> str:
    """Return how well the steps of `unseen` were predicted, by number of nodes, and what is known where they were not.

    Args:
        table: From `unseen`.
    """
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


def prediction_figure(table: pd.DataFrame) -> Figure:
    """Draw how far each step was from its prediction, over the predicted step; a colour per number of nodes.

    Args:
        table: From `unseen`.
    """
    axes = plots.empty(7.6, 3.4).subplots()
    axes.axhspan(-5, 5, color="0.92", zorder=0)
    axes.axhline(0, color="0.4", linewidth=0.9)
    for colour, (nodes, rows) in zip(plots.COLOURS, table.groupby("nodes"), strict=False):
        axes.plot(1e3 * rows["unseen_seconds"], 100 * rows["error"], "o", color=colour, label=f"{nodes} nodes")
    axes.set(xscale="log", xlabel="predicted step (ms)", ylabel="predicted / measured - 1 (%)")
    axes.grid(alpha=0.3)
    return plots.finished(axes)


def steps(runs: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Return a row per run: the step time of one node or two, with the global batch and the link.

    Columns: `link` (bits per second), `B` (images per step of all nodes), `N`, `seconds` (of a step, without the first
    epoch), `run`, `seed` and `disturbed`, for `noise.compare`.

    Args:
        runs: Records of lab 7's sweep "links", of one model size and one backend.

    Raises:
        LabError: There are no runs, or their models differ in size.
    """
    import pandas as pd

    rows = [{"run": run["run"], "seed": run["config"]["seed"], "disturbed": noise.disturbance(run),
             "link": bits_per_second(run["machine"]["link"]), "B": run["layout"]["global_batch_size"],
             "N": run["layout"]["size"],
             "seconds": run["timings"]["seconds_per_epoch"] / run["history"][-1]["steps"]} for run in runs]
    if len({run["metrics"]["parameters"] for run in runs}) != 1:
        raise LabError("this table needs runs of one model size; make them with `labs cluster sweep lab07_vit "
                       "--preset cluster`")
    return pd.DataFrame(rows)


def second_node(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the speedup of two nodes by batch and link; the intervals hold together, `note` names runs left out.

    One node uses no link, so its runs are one baseline per batch, whatever the links were set to.

    Args:
        rows: From `steps`.
    """
    import pandas as pd

    alone = dict(iter(rows[rows["N"] == 1].groupby("B")))
    table, groups = [], rows[rows["N"] == 2].groupby(["B", "link"])
    for (batch, link), two in groups:
        speedup = noise.compare(alone[batch], two, "seconds", ratio=True, comparisons=len(groups))
        table.append({"B": batch, "link": link, "speedup": speedup.value, "speedup_low": speedup.low,
                      "speedup_high": speedup.high,
                      "note": f"Left out, disturbed: {', '.join(speedup.left_out)}." * bool(speedup.left_out)})
    return pd.DataFrame(table)


def transports_compared(runs: Sequence[dict[str, Any]], nbytes: int, nodes: int = 2) -> pd.DataFrame:
    """Return the milliseconds of an all-reduce over MPI and over Gloo, a row per bandwidth of the links.

    Args:
        runs: Records of lab 5's study "links".
        nbytes: Size of the message, one of those that were measured.
        nodes: Number of nodes.
    """
    rows = _allreduces(runs)
    horovod = rows["library"].str.startswith("Horovod") & (rows["nodes"] == nodes) & (rows["bytes"] == nbytes)
    table = 1e3 * rows[horovod].pivot_table(index="bandwidth", columns="backend", values="seconds")
    table = table.loc[sorted(table.index, key=bits_per_second), ["MPI", "Gloo"]]
    return table.assign(ratio=table["Gloo"] / table["MPI"]).rename(columns={"ratio": "Gloo / MPI"})


def second_node_figure(predicted: Callable[[int, Any], Any], batches: Sequence[int],
                       measured: pd.DataFrame | None = None) -> Figure:
    """Draw the speedup of two nodes over the bandwidth of their links: lines are predicted, points are measured.

    Args:
        predicted: Returns the speedups of a global batch over links of some bandwidths, in bits per second.
        batches: Global batches, a line each.
        measured: From `second_node`; bars are its intervals.
    """
    axes, links = plots.empty(7.6, 3.9).subplots(), np.geomspace(2e7, 2e10, 200)
    axes.axhspan(0.01, 1, color="0.94", zorder=0)
    axes.axhline(1, color="0.4", linewidth=0.9)
    for colour, batch in zip(plots.COLOURS, batches, strict=False):
        axes.plot(links, predicted(batch, links), color=colour, label=f"B = {batch}, predicted")
        if measured is not None and batch in set(measured["B"]):
            points = measured[measured["B"] == batch]
            ends = [(points[f"speedup_{end}"] - points["speedup"]).abs().fillna(0) for end in ("low", "high")]
            axes.errorbar(points["link"], points["speedup"], ends, fmt="o", color=colour, capsize=3, markersize=5,
                          label=f"B = {batch}, measured")
    axes.set(xscale="log", yscale="log", xlim=(links[0], links[-1]), ylim=(0.05, 3),
             xlabel="bandwidth of each link (Mbit/s)", ylabel="speedup of two nodes, T$_1$ / T$_2$")
    axes.set_xticks([2e7, 5e7, 2e8, 1e9, 1e10], ["20", "50", "200", "1,000", "10,000"])
    axes.set_yticks([0.05, 0.1, 0.2, 0.5, 1, 2], ["0.05", "0.1", "0.2", "0.5", "1", "2"])
    axes.minorticks_off()
    axes.annotate("grey: one node is faster", (0.98, 0.04), xycoords="axes fraction", ha="right", fontsize=9,
                  color="0.35")
    return plots.finished(axes)


def summary(runs: Sequence[dict[str, Any]]) -> str:
    """Return what the studies over links have found, as text; an empty string if there are no such runs.

    Args:
        runs: Records of lab 5.
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
        if between := [row for run in runs if "cells" in run["tables"] for row in _unseen(run)]:
            text.append(_judged(link_model.errors(between, "unseen_seconds"),
                                f"{len(between)} of them without an all-reduce over their link"))
    return "\n\n".join(text)


def _judged(errors: dict[str, float], what: str) -> str:
    return (f"{what}: median error {errors['median']:.1%}, {errors['within_15']:.0%} within 15 %, "
            f"largest {errors['largest']:.0%}")
