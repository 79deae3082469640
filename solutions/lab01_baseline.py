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
