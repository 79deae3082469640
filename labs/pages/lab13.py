"""Page 13: what each worker keeps, a pipeline over time, and the time of a step by several ways to exchange."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from labs.pages import plots
from labs.pages.plots import Runs
from labs.results import noise

BYTES = {"weights": (4, 3, "0.35"), "gradients": (4, 2, "0.6"), "Adam's moments": (8, 1, "0.85")}
"""Bytes per parameter, the stage of ZeRO that begins to divide them, and a grey."""


def memory_figure(parameters: float, workers: int, limit: float) -> Figure:
    """Draw what a worker keeps in data parallelism and in the three stages of ZeRO; `limit` is its memory in bytes."""
    (axes,), bottoms = plots.panels(1, 3.6), np.zeros(4)
    for name, (each, divided_from, colour) in BYTES.items():
        sizes = np.array([parameters * each / (workers if stage >= divided_from else 1) / 1e9 for stage in range(4)])
        axes.bar(range(4), sizes, 0.6, bottoms, color=colour, label=name, **plots.EDGE)
        bottoms += sizes
    for stage, total in enumerate(bottoms):
        axes.text(stage, total + 2, f"{total:.3g} GB", ha="center", fontsize=10)
    axes.axhline(limit / 1e9, color="tab:red", linestyle="--", label=f"memory of one GPU: {limit / 1e9:.0f} GB")
    axes.set_xticks(range(4), ["each keeps\neverything", "ZeRO, stage 1", "ZeRO, stage 2", "ZeRO, stage 3\n(FSDP)"])
    axes.set(ylabel="kept by each worker (GB)", ylim=(0, 1.15 * bottoms[0]),
             title=f"{parameters / 1e9:g} billion parameters on {workers} workers, without activations")
    return plots.finish(axes)


def pipeline_figure(stages: int, micro_batches: int) -> Figure:
    """Draw a pipeline's forward passes: a row per worker with its stage, a box per micro-batch, grey is waiting."""
    units = micro_batches + stages - 1
    (axes,) = plots.panels(1, 1.2 + 0.4 * stages)
    for stage in range(stages):
        axes.barh(stage, units, 0.8, color="0.9", edgecolor="none")
        for number in range(micro_batches):
            axes.barh(stage, 1, 0.8, stage + number, color=plots.RANK_COLOURS[stage % len(plots.RANK_COLOURS)],
                      **plots.EDGE)
            axes.text(stage + number + 0.5, stage, str(number), ha="center", va="center", fontsize=9)
    axes.set_yticks(range(stages), [f"worker {stage}: stage {stage}" for stage in range(stages)])
    axes.set(xlim=(0, units), ylim=(stages - 0.5, -0.5),
             xlabel="time (units: the forward pass of a micro-batch in one stage)",
             title=f"{stages} stages, {micro_batches} micro-batches: grey is waiting")
    return plots.finish(axes)


def method_table(runs: Runs) -> pd.DataFrame:
    """Return compute, exchange (ms per step, with its interval), exchanges, bytes and distance, a row per method.

    Times of a run are its rounds' medians; those of several runs, one per seed, are means.
    """
    rows = []
    for run in runs:
        medians = 1e3 * pd.DataFrame(run["tables"]["rounds"]).groupby("method", sort=False).median()
        rows += [message | {"compute": medians["compute_seconds"][message["method"]],
                            "step": medians["step_seconds"][message["method"]]}
                 for message in run["tables"]["messages"]]
    frame = pd.DataFrame(rows).rename(columns={"exchanges_per_step": "exchanges", "bytes_per_step": "bytes"})
    methods = frame.assign(exchange=frame["step"] - frame["compute"]).groupby("method", sort=False)
    bounds = np.array([noise.mean_interval(values) for _, values in methods["exchange"]])
    table = methods[["compute", "exchange", "exchanges", "bytes", "distance"]].mean()
    return table.assign(exchange_low=bounds[:, 0], exchange_high=bounds[:, 1])


def method_figure(table: pd.DataFrame, live: pd.DataFrame) -> Figure:
    """Draw each method's time of a step: compute and exchange of reference runs; points are the page's own run."""
    (axes,), places = plots.panels(1, 3.6), range(len(table))
    axes.barh(places, table["compute"], 0.62, color="0.8", label="compute", **plots.EDGE)
    axes.barh(places, table["exchange"], 0.62, table["compute"], xerr=plots.error_lengths(table, "exchange"),
              capsize=3, color="tab:orange", label="exchange (whisker:\nits 95 % interval)", **plots.EDGE)
    steps = (live["compute"] + live["exchange"]).reindex(table.index)
    axes.plot(steps, places, "D", color="black", markersize=5, label="whole step,\nthis page's run")
    axes.set_yticks(places, table.index)
    axes.invert_yaxis()
    axes.set(xlabel="time of a step (milliseconds)")
    return plots.finish(axes)


def framework_table(ours: dict[str, Any], earlier: Runs) -> pd.DataFrame:
    """Return a row per framework; earlier records with the same settings have those that `ours` has skipped."""
    same = [("reference run", run) for run in earlier if run["config"] == ours["config"]]
    rows = {row["framework"]: row | {"from": where} for where, run in (*same, ("this run", ours))
            for row in run["tables"]["frameworks"] if not row["skipped"]}
    return pd.DataFrame(rows.values()).set_index("framework").drop(columns="skipped")


def compare_exchanges(runs: Runs, method: str, baseline: str, comparisons: int) -> str:
    """Return whether a method's exchange is shorter or longer than another's by more than noise; seeds are paired."""
    exchange = {run["config"]["seed"]: method_table([run])["exchange"] for run in runs}
    one, other = ({seed: methods[name] for seed, methods in exchange.items()} for name in (method, baseline))
    verdict = noise.compare(one, other, comparisons=comparisons)
    return {-1: "shorter", 0: "not resolved", 1: "longer"}[verdict.direction]
