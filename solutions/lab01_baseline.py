"""Lab 1."""

import math

import numpy as np

from labs.measure.throughput import seconds_per_step
from labs.results import records


def q1(runs):
    """Each epoch ends with a smaller batch, so round up the steps of one epoch, then multiply."""
    (run,) = runs
    return 40 * math.ceil(run["history"][0]["images"] / run["config"]["batch_size"])


def q2(runs):
    """The time of a step leaves out the first epoch, in which the model is traced; padding takes time, too."""
    (run,) = runs
    steps = 40 * math.ceil(60_000 / run["config"]["batch_size"])
    return steps * seconds_per_step(run["history"]) / 60


def q3(runs):
    """Compare images per second, not how busy the machine is."""
    table = records.table(runs)
    return int(table["batch_size"][table["images_per_sec"].idxmax()])


def q4(runs):
    """`a` is the fixed time of a step, `c` the time of an image."""
    sizes = np.array([run["config"]["batch_size"] for run in runs])
    later = [run["history"][1:] for run in runs]
    t = np.array([1000 * sum(row["train_seconds"] for row in rows) / sum(row["steps"] for row in rows)
                  for rows in later])
    c, a = np.polyfit(sizes, t, 1, w=1 / t)
    return {"a": a, "c": c, "step": a + c * 256}


def steps_per_epoch(images, batch_size):
    """Round up: what is left after the full batches is a batch, too."""
    return math.ceil(images / batch_size)


def fit_cost(batch_sizes, milliseconds):
    """`np.polyfit` multiplies each error by its weight before it squares it, so the weight is 1 / t, not 1 / t**2."""
    if len(set(batch_sizes)) < 2:
        raise ValueError("a line needs measurements of two batch sizes")
    c, a = np.polyfit(batch_sizes, milliseconds, 1, w=1 / np.asarray(milliseconds))
    return a, c


bug = {"symptom": "the log counts every epoch twice", "line": "line 36"}
