"""Page 12: where a run's wall time goes when it is killed, preempted, or elastic; and kills at a byte of a file."""

from __future__ import annotations

import itertools
import math
import os
import resource
import signal
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from labs.pages import plots
from labs.results import noise

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from labs.results.records import Record

USES = {"training": plots.COLOURS[0], "saving": plots.COLOURS[2], "lost": plots.COLOURS[1], "queue": "0.88",
        "ending and queue": "0.88", "restart": "0.55"}
"""What the wall clock is spent on, with its colour."""


def clock_figure(lanes: Mapping[str, Sequence[tuple[str, float]]], title: str) -> Figure:
    """Draw what jobs spend the wall clock on, a lane for each.

    Args:
        lanes: By name, the parts in their order: one of USES, and how many minutes it takes.
        title: What the figure shows.
    """
    from matplotlib.patches import Patch

    figure = plots.empty(9, 1.5 + 0.5 * len(lanes))
    axes = figure.subplots()
    for y, parts in enumerate(lanes.values()):
        left = 0.0
        for use, length in parts:
            axes.barh(y, length, 0.6, left, color=USES[use], edgecolor="black", linewidth=0.6)
            left += length
    axes.set_yticks(range(len(lanes)), list(lanes))
    axes.invert_yaxis()
    axes.set(xlabel="minutes since the first start", xlim=(0, None))
    axes.set_title(title, fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    seen = {use for parts in lanes.values() for use, _ in parts}
    handles = [Patch(facecolor=colour, edgecolor="black", label=use) for use, colour in USES.items() if use in seen]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=9)
    figure.set_layout_engine("constrained", w_pad=0.1, h_pad=0.1)
    return figure


# Kills at a byte.

def load_after_kills(save: Callable[[str, Any], Any], load: Callable[[str], Any], states: tuple[Any, Any],
                     kills: Iterable[int]) -> list[Any]:
    """Return what loads after each kill: a process saves one state, and is killed while it saves the next one.

    Args:
        save: Takes a path and a state, and writes it.
        load: Takes the path, and returns the state.
        states: The state that is saved completely, and the one whose save is cut.
        kills: The bytes at which to kill.

    Returns:
        For each kill what `load` returned, or the name of the error that it raised.
    """
    left = []
    for kill in kills:
        with tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/checkpoint"
            save(file, states[0])
            _save_and_die(save, file, states[1], kill)
            try:
                left.append(load(file))
            except Exception as error:  # A cut file makes a reader raise almost anything.
                left.append(type(error).__name__)
    return left


def _save_and_die(save: Callable[[str, Any], Any], file: str, state: Any, kill: int) -> None:
    """Save in a process that the kernel kills: RLIMIT_FSIZE sends SIGXFSZ at the byte that exceeds the limit."""
    with warnings.catch_warnings():
        # A notebook's kernel has threads. The child has one, and does nothing but save.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it, and would go on with an error.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (kill, kill))
        save(file, state)
    except BaseException:
        traceback.print_exc()
    os._exit(0)


# Checkpoints and random kills.

def first_order(interval, save: float, life: float, restart: float):
    """Return the wasted share of the clock: a save per interval; per failure half an interval and a restart.

    Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974. It holds while all three
    are short compared with the mean time between failures.

    Args:
        interval: T, seconds of training between two checkpoints; a number or an array.
        save: C, seconds of a checkpoint.
        life: M, mean seconds between two failures.
        restart: R, seconds from a failure to the next step.
    """
    return save / interval + (interval / 2 + restart) / life


def exponential(interval, save: float, life: float, restart: float):
    """Return the wasted share of the clock if failures are random, also during saves and restarts.

    Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22(3), 2006. Arguments as
    of `first_order`.
    """
    return 1 - interval / (life * math.exp(restart / life) * np.expm1((np.asarray(interval) + save) / life))


def kill_table(runs: Iterable[Record]) -> pd.DataFrame:
    """Return the lives of the study "kills", a row per kill, with `save_every` and `seed` of their runs."""
    import pandas as pd

    return pd.DataFrame([{**life, "save_every": run["config"]["save_every"], "seed": run["config"]["seed"]}
                         for run in runs for life in run["tables"].get("kills", [])])


def model_constants(lives: pd.DataFrame) -> tuple[float, float, float]:
    """Return what the models need of `kill_table`, in seconds: mean save C, mean life M, mean restart R."""
    started = lives[lives["restart"] < lives["life"]]
    return (float(lives["saving"].sum() / lives["saves"].sum()), float(lives["life"].mean()),
            float(started["restart"].mean()))


def waste_table(lives: pd.DataFrame) -> pd.DataFrame:
    """Return the shares of the clock by `save_every`: kept, saving, lost, restart, and wasted with its interval.

    The interval, `wasted_low` to `wasted_high`, is Student's 95 % interval over the lives, whose lengths are
    independent. `T` is the mean time of the steps between two checkpoints; the nominal one where none was completed.
    """
    import pandas as pd

    rows = {}
    for every, same in lives.groupby("save_every"):
        total, saves = same["life"].sum(), same["saves"].sum()
        kept = same["kept"].sum() / total
        off = (same["kept"] - kept * same["life"]) / same["life"].mean()  # Of a ratio of two means.
        half = float(noise.half_width(off.var() / len(same), len(same) - 1))
        rows[every] = {"kills": len(same), "T": same["kept"].sum() / saves if saves else every,
                       **{use: same[use].sum() / total for use in ("kept", "saving", "lost", "restart")},
                       "wasted": 1 - kept, "wasted_low": 1 - kept - half, "wasted_high": 1 - kept + half}
    return pd.DataFrame(rows).T.rename_axis("save_every")


def waste_figure(save: float, life: float, restart: float, measured: pd.DataFrame) -> Figure:
    """Draw the wasted share over the checkpoint interval: both models, and what was measured.

    Args:
        save, life, restart: C, M and R, as of `first_order`.
        measured: From `waste_table`.
    """
    axes = plots.empty(9, 3.8).subplots()
    best = math.sqrt(2 * save * life)
    intervals = np.geomspace(best / 12, max(12 * best, 2 * life), 200)
    simple = first_order(intervals, save, life, restart)
    axes.plot(intervals[simple <= 1], simple[simple <= 1], "--", color="0.4", label="first order (Young)")
    axes.plot(intervals, exponential(intervals, save, life, restart), color="0.2", label="all orders (Daly)")
    axes.axvline(best, color=plots.COLOURS[2], linestyle=":", label=f"$\\sqrt{{2\\,C\\,M}}$ = {best:.2g} s")
    errors = [(measured["wasted"] - measured["wasted_low"]).clip(lower=0),
              (measured["wasted_high"] - measured["wasted"]).clip(lower=0)]
    axes.errorbar(measured["T"], measured["wasted"], errors, fmt="o", color=plots.COLOURS[0], capsize=3, zorder=3,
                  label="measured")
    axes.set(xscale="log", ylim=(0, 1), xlabel="$T$: seconds of training between two checkpoints",
             ylabel="wasted share of the clock")
    axes.xaxis.set_major_formatter("{x:g}")
    return plots.finish(axes)


# A job that goes on after its time limit.

def job_parts(run: Record) -> list[tuple[str, float]]:
    """Return what a resumed run spent the clock on, in order, in minutes, for `clock_figure`."""
    parts, now = [], 0.0
    for event in run["tables"]["events"]:
        stopped = event["seconds"] - event["seconds_lost"]
        parts += [("training", stopped - now), ("ending and queue", event["seconds_lost"] - event["seconds_starting"]),
                  ("restart", event["seconds_starting"])]
        now = event["seconds"]
    return [(use, seconds / 60) for use, seconds in (*parts, ("training", run["metrics"]["wall_seconds"] - now))]


def job_seconds(run: Record) -> dict[str, float]:
    """Return the seconds of a resumed run by their use: steps that count, steps lost, queue, restarts, and the rest."""
    events, history = run["tables"]["events"], run["history"]
    useful = sum(row["train_seconds"] for row in history)
    starting = sum(event["seconds_starting"] for event in events)
    queue = sum(event["seconds_lost"] for event in events) - starting
    lost = sum(event["steps_lost"] for event in events) * _step_seconds(history)
    return {"useful steps": useful, "lost steps": lost, "ending and queue": queue, "restarts": starting,
            "first start, saves, evaluation": run["metrics"]["wall_seconds"] - useful - lost - queue - starting}


def _step_seconds(history: Sequence[Mapping[str, Any]]) -> float:
    """Return the median time of a step, without the first epoch where there are others."""
    return float(np.median([row["train_seconds"] / row["steps"] for row in history[1:] or history]))


# Elastic training.

def epoch_seconds(run: Record, size: int) -> float:
    """Return the mean seconds of the epochs in which an elastic run kept this size, without the first epoch."""
    return float(np.mean([seconds for seconds, _ in noise.epochs_by_size(run)[size]]))


def epochs_left(run: Record) -> float:
    """Return how many epochs of an elastic run were left when a worker joined; 0 if none did."""
    for before, after in itertools.pairwise(run["tables"]["progress"]):
        if after["size"] > before["size"]:
            return float(run["config"]["epochs"] - after["epochs"])
    return 0.0


def elastic_events(runs: Iterable[Record]) -> pd.DataFrame:
    """Return what lost and joining workers cost, a row per event of each run, with the time of the repeated steps.

    Columns: `kind`, `commit_steps`, `steps_lost`, `pause` and `repeated` (seconds), and `cost`, their sum.
    """
    import pandas as pd

    rows = []
    for run in runs:
        for event in run["tables"]["events"][1:]:
            repeated = event["steps_lost"] * _step_seconds(run["history"])
            rows.append({"kind": event["kind"], "commit_steps": run["config"]["commit_steps"],
                         "steps_lost": event["steps_lost"], "pause": event["seconds_lost"], "repeated": repeated,
                         "cost": event["seconds_lost"] + repeated})
    return pd.DataFrame(rows)


def progress_figure(run: Record) -> Figure:
    """Draw the epochs of an elastic run over time, a colour per size; pauses are grey, lost steps black."""
    axes = plots.empty(9, 3.4).subplots()
    rows = run["tables"]["progress"]
    for first, second in itertools.pairwise(rows):
        ends = [first["seconds"], second["seconds"]], [first["epochs"], second["epochs"]]
        if second["epochs"] < first["epochs"]:
            axes.plot(*ends, color="black", linewidth=3, zorder=3, label="lost steps")
            continue
        axes.plot(*ends, color=plots.COLOURS[(second["size"] - 1) % len(plots.COLOURS)], marker=".", markersize=3,
                  label=f"{second['size']} worker" + "s" * (second["size"] > 1))
    for event in run["tables"]["events"]:
        axes.axvspan(event["seconds"] - event["seconds_lost"], event["seconds"], color="0.85", zorder=0)
        axes.annotate(event["kind"] + " ", (event["seconds"], rows[-1]["epochs"]), rotation=90, ha="right", va="top",
                      fontsize=8)
    axes.set(xlabel="seconds since the start (grey: no training)", ylabel="epochs")
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))  # One entry per size.
    figure = plots.finish(axes)
    axes.legend(handles.values(), handles, fontsize=8, **plots.BESIDE)
    return figure
