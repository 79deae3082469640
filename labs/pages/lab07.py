"""Page 7: the speedup of a second node over links, and exchanges over MPI and Gloo."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from labs.pages import lab05, plots
from labs.pages.plots import Runs
from labs.results import noise
from labs.run.cluster_state import bits_per_second


def step_table(runs: Runs) -> pd.DataFrame:
    """Return a row per run of lab 7's sweep "links": `link` in bits per second, `B` images and `seconds` per step."""
    return pd.DataFrame([
        {"run": run["run"], "seed": run["config"]["seed"], "disturbed": noise.disturbance(run),
         "link": bits_per_second(run["machine"]["link"]), "B": run["layout"]["global_batch_size"],
         "N": run["layout"]["size"],
         "seconds": run["timings"]["seconds_per_epoch"] / run["history"][-1]["steps"]} for run in runs])


def second_node_speedups(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the speedup of two nodes by batch and link; the intervals hold together, `note` names runs left out.

    One node uses no link, so its runs are one baseline per batch, whatever the links were set to.
    """
    alone = dict(iter(rows[rows["N"] == 1].groupby("B")))
    table, groups = [], rows[rows["N"] == 2].groupby(["B", "link"])
    for (batch, link), two in groups:
        speedup = noise.compare(alone[batch], two, "seconds", ratio=True, comparisons=len(groups))
        table.append({"B": batch, "link": link, "speedup": speedup.value, "speedup_low": speedup.low,
                      "speedup_high": speedup.high,
                      "note": f"Left out, disturbed: {', '.join(speedup.left_out)}." * bool(speedup.left_out)})
    return pd.DataFrame(table)


def second_node_figure(predicted: Callable[[int, Any], Any], batches: Sequence[int],
                       measured: pd.DataFrame | None = None) -> Figure:
    """Draw the speedup of two nodes over the bandwidth of their links: lines are predicted, points are measured.

    `predicted(batch, links)` returns speedups over links in bits per second; `measured` is from `second_node_speedups`.
    """
    (axes,), links = plots.panels(1, 3.9, 7.6), np.geomspace(2e7, 2e10, 200)
    axes.axhspan(0.01, 1, color="0.94", zorder=0)
    axes.axhline(1, color="0.4", linewidth=0.9)
    for colour, batch in zip(plots.COLOURS, batches, strict=False):
        axes.plot(links, predicted(batch, links), color=colour, label=f"B = {batch}, predicted")
        if measured is not None:
            points = measured[measured["B"] == batch]
            axes.errorbar(points["link"], points["speedup"], plots.error_lengths(points, "speedup"), fmt="o",
                          color=colour, capsize=3, markersize=5, label=f"B = {batch}, measured")
    plots.set_log_ticks(axes, "x", [2e7, 5e7, 2e8, 1e9, 1e10], unit=1e6)
    plots.set_log_ticks(axes, "y", [0.05, 0.1, 0.2, 0.5, 1, 2])
    axes.set(xlim=(links[0], links[-1]), ylim=(0.05, 3), xlabel="bandwidth of each link (Mbit/s)",
             ylabel="speedup of two nodes, T$_1$ / T$_2$")
    axes.text(0.98, 0.04, "grey: one node is faster", transform=axes.transAxes, ha="right", fontsize=9, color="0.35")
    return plots.finish(axes)


def compare_backends(runs: Runs, nbytes: int) -> pd.DataFrame:
    """Return the milliseconds of an all-reduce of two nodes over MPI and over Gloo, a row per bandwidth."""
    rows = lab05.allreduces(runs)
    horovod = rows["library"].str.startswith("Horovod") & (rows["nodes"] == 2) & (rows["bytes"] == nbytes)
    table = 1e3 * rows[horovod].pivot_table(index="bandwidth", columns="backend", values="seconds")
    table = table.loc[sorted(table.index, key=bits_per_second), ["MPI", "Gloo"]]
    return table.assign(ratio=table["Gloo"] / table["MPI"]).rename(columns={"ratio": "Gloo / MPI"})
