"""Lab 4."""

import math

import numpy as np
from scipy.special import stdtrit

from labs.results import records


def q1(runs):
    """The baseline of each batch size is one worker with that batch size."""
    throughputs = records.table(runs).pivot_table("images_per_sec", "batch_size", "size")
    speedups = throughputs[throughputs.columns[-1]] / throughputs[1]
    return {int(batch): speedup for batch, speedup in speedups.items()}


def q2(runs):
    """Strong scaling: the global batch is the same, so the batch per worker is smaller on several workers."""
    one, many = runs
    return many["timings"]["images_per_sec"] / one["timings"]["images_per_sec"] / many["layout"]["size"]


def q3(runs):
    """The part that limits the scaling is the one farthest above 1/n of its time on one worker, not the largest."""
    one, many = (run["metrics"] for run in runs)
    size = runs[1]["layout"]["size"]
    parts = [name for name in many if name.startswith("ledger_") and name != "ledger_wall_seconds"]
    worst = max(parts, key=lambda part: many[part] - one[part] / size)
    return worst.removeprefix("ledger_").removesuffix("_seconds")


def q4(runs):
    """The input is not communication; it has its own part."""
    metrics = runs[0]["metrics"]
    return metrics["ledger_communication_seconds"] / metrics["ledger_wall_seconds"]


def efficiency(images_per_sec_1, images_per_sec_n, n):
    """Relative errors of a quotient add as squares. Student's t for the fewer repeats is a little too wide."""
    one, many = np.asarray(images_per_sec_1), np.asarray(images_per_sec_n)
    repeats = min(len(one), len(many))
    if repeats < 2:
        raise ValueError("an interval needs two repeats of each")
    value = many.mean() / one.mean() / n
    relative = [runs.std(ddof=1) / math.sqrt(len(runs)) / runs.mean() for runs in (one, many)]
    half = stdtrit(repeats - 1, 0.975) * value * math.hypot(*relative)
    return value, value - half, value + half


def excess(one, many, n):
    """Not `many - one`, and not the share: ideal workers would take 1/n of every entry."""
    return {entry: many[entry] - one[entry] / n for entry in one}


bug = {"symptom": "some images are left out of an epoch", "line": "line 28"}
