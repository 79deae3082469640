"""Page 12: where a run's wall time goes when it is killed, preempted, or elastic; and kills at a byte of a file."""

import itertools
import math
import multiprocessing
import resource
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from labs.pages import plots
from labs.pages.at_scale import first_order, time_lost
from labs.results import noise
from labs.results.records import Record
from labs.run.errors import plural

USES = {"training": plots.COLOURS[0], "saving": plots.COLOURS[2], "lost": plots.COLOURS[1], "queue": "0.88",
        "ending and queue": "0.88", "restart": "0.55"}
"""What the wall clock is spent on, with its colour."""


def clock_figure(lanes: Mapping[str, Sequence[tuple[str, float]]], title: str) -> Figure:
    """Draw what jobs spend the wall clock on, a lane for each: its parts in order, one of USES and its minutes."""
    (axes,), bars = plots.panels(1, 1.5 + 0.5 * len(lanes)), {}
    for y, parts in enumerate(lanes.values()):
        left = 0.0
        for use, length in parts:
            bars[use] = axes.barh(y, length, 0.6, left, color=USES[use], label=use, **plots.EDGE)
            left += length
    axes.set_yticks(range(len(lanes)), list(lanes))
    axes.invert_yaxis()
    axes.set(xlabel="minutes since the first start", xlim=(0, None), title=title)
    return plots.finish_below(axes, len(bars), [bars[use] for use in USES if use in bars])


def load_after_kills(save: Callable[[str, Any], Any], load: Callable[[str], Any], states: tuple[Any, Any],
                     kills: Iterable[int]) -> list[Any]:
    """Return what loads after each kill: a process saves one state, and is killed while it saves the next one.

    A kill is the byte at which `save(path, state)` ends. Where `load(path)` fails, the result is the error's name.
    """
    left = []
    for kill in kills:
        # A notebook's kernel has threads, of which Python warns. The child has one, and does nothing but save.
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
            file = f"{folder}/checkpoint"
            save(file, states[0])
            child = multiprocessing.get_context("fork").Process(target=_save_up_to, args=(kill, save, file, states[1]))
            child.start()
            child.join()
            try:
                left.append(load(file))
            except Exception as error:  # A cut file makes a reader raise almost anything.
                left.append(type(error).__name__)
    return left


def _save_up_to(kill: int, save: Callable[[str, Any], Any], file: str, state: Any) -> None:
    """Save until the kernel kills this process: RLIMIT_FSIZE sends SIGXFSZ at the byte that exceeds the limit."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it, and would go on with an error.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (kill, kill))
    save(file, state)


def kill_table(runs: Iterable[Record]) -> pd.DataFrame:
    """Return the lives of the study "kills", a row per kill, with `save_every` of their runs."""
    return pd.DataFrame([{**life, "save_every": run["config"]["save_every"]}
                         for run in runs for life in run["tables"].get("kills", [])])


def model_constants(lives: pd.DataFrame) -> tuple[float, float, float]:
    """Return the mean save C, mean life M and mean restart R of `kill_table`, in seconds."""
    started = lives[lives["restart"] < lives["life"]]
    return (float(lives["saving"].sum() / lives["saves"].sum()), float(lives["life"].mean()),
            float(started["restart"].mean()))


def waste_table(lives: pd.DataFrame) -> pd.DataFrame:
    """Return kills, the share `wasted` with Student's 95 % interval, and the mean `T` of steps between checkpoints."""
    rows = {}
    for every, same in lives.groupby("save_every"):
        saves, kept = same["saves"].sum(), same["kept"].sum() / same["life"].sum()
        off = (same["kept"] - kept * same["life"]) / same["life"].mean()  # Of a ratio of two means.
        half = float(noise.half_width(off.var() / len(same), len(same) - 1))
        rows[every] = {"kills": len(same), "T": same["kept"].sum() / saves if saves else every,
                       "wasted": 1 - kept, "wasted_low": 1 - kept - half, "wasted_high": 1 - kept + half}
    return pd.DataFrame(rows).T.rename_axis("save_every")


def waste_figure(save: float, life: float, restart: float, measured: pd.DataFrame) -> Figure:
    """Draw the wasted share over the checkpoint interval: both models, and what was measured, from `waste_table`."""
    (axes,), best = plots.panels(1, 3.8), math.sqrt(2 * save * life)
    intervals = np.geomspace(best / 12, max(12 * best, 2 * life), 200)
    simple = first_order(intervals, save, life, restart)
    axes.plot(intervals[simple <= 1], simple[simple <= 1], "--", color="0.4", label="first order (Young)")
    axes.plot(intervals, time_lost(intervals, save, restart, life), color="0.2", label="all orders (Daly)")
    axes.axvline(best, color=plots.COLOURS[2], linestyle=":", label=f"$\\sqrt{{2\\,C\\,M}}$ = {best:.2g} s")
    axes.errorbar(measured["T"], measured["wasted"], plots.error_lengths(measured, "wasted"), fmt="o",
                  color=plots.COLOURS[0], capsize=3, zorder=3, label="measured")
    axes.set(xscale="log", ylim=(0, 1), xlabel="$T$: seconds of training between two checkpoints",
             ylabel="wasted share of the clock")
    axes.xaxis.set_major_formatter("{x:g}")
    return plots.finish(axes)


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
    clock = 60 * pd.DataFrame(job_parts(run)).groupby(0)[1].sum()
    useful = sum(row["train_seconds"] for row in run["history"])
    lost = sum(event["steps_lost"] for event in run["tables"]["events"]) * _step_seconds(run["history"])
    return {"useful steps": useful, "lost steps": lost, "ending and queue": clock["ending and queue"],
            "restarts": clock["restart"], "first start, saves, evaluation": clock["training"] - useful - lost}


def _step_seconds(history: Sequence[Mapping[str, Any]]) -> float:
    """Return the median time of a step, without the first epoch where there are others."""
    return float(np.median([row["train_seconds"] / row["steps"] for row in history[1:] or history]))


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
    """Return what lost and joining workers cost (seconds), a row per event of each run, with the repeated steps."""
    table = pd.DataFrame([{"kind": event["kind"], "commit_steps": run["config"]["commit_steps"],
                           "steps_lost": event["steps_lost"], "pause": event["seconds_lost"],
                           "repeated": event["steps_lost"] * _step_seconds(run["history"])}
                          for run in runs for event in run["tables"]["events"][1:]])
    return table.assign(cost=table["pause"] + table["repeated"])


def progress_figure(run: Record) -> Figure:
    """Draw the epochs of an elastic run over time, a colour per size; pauses are grey, lost steps black."""
    (axes,), rows, lines = plots.panels(1, 3.4), run["tables"]["progress"], {}
    for first, second in itertools.pairwise(rows):
        lost, size = second["epochs"] < first["epochs"], second["size"]
        label = "lost steps" if lost else plural(size, "worker")
        (lines[label],) = axes.plot(
            [first["seconds"], second["seconds"]], [first["epochs"], second["epochs"]], marker="." * (not lost),
            color="black" if lost else plots.COLOURS[(size - 1) % len(plots.COLOURS)], linewidth=3 if lost else 1.5,
            markersize=3, zorder=3 if lost else 2)
    for event in run["tables"]["events"]:
        axes.axvspan(event["seconds"] - event["seconds_lost"], event["seconds"], color="0.85", zorder=0)
        axes.annotate(event["kind"] + " ", (event["seconds"], rows[-1]["epochs"]), rotation=90, ha="right", va="top",
                      fontsize=8)
    axes.set(xlabel="seconds since the start (grey: no training)", ylabel="epochs")
    axes.legend(lines.values(), lines, fontsize=8, **plots.BESIDE)
    return plots.finish(axes)
