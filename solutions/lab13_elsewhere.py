"""Lab 13."""

import numpy as np

from labs.results import records


def _medians(run):
    return records.rows_of([run], "rounds").groupby("method")[["compute_seconds", "step_seconds"]].median()


def q1(runs):
    """The exchange is what a step takes longer than its computation."""
    plain = _medians(runs[0]).loc["plain"]
    return (plain["step_seconds"] - plain["compute_seconds"]) / plain["step_seconds"]


def q2(runs):
    """The largest difference."""
    medians = _medians(runs[0])
    return (medians["step_seconds"] - medians["compute_seconds"]).idxmax()


def q3(runs):
    """Stage 1 divides the moments only."""
    (run,) = runs
    return bytes_per_worker(run["metrics"]["parameters"], run["layout"]["size"], 1)


def adam(weights, gradient, moments):
    """As on the page."""
    first = 0.9 * moments[0] + 0.1 * gradient
    second = 0.999 * moments[1] + 0.001 * gradient**2
    return weights - 0.1 * first / (np.sqrt(second) + 1e-3), np.stack([first, second])


def zero_step(weights, gradients, moments):
    """Each rank updates its part; all ranks get all parts."""
    size = len(weights)
    mean = np.split(np.mean(gradients, axis=0), size)
    parts = [adam(np.split(weights[rank], size)[rank], mean[rank], moments[rank]) for rank in range(size)]
    gathered = np.concatenate([part for part, _ in parts])
    return [gathered.copy() for _ in range(size)], [new for _, new in parts]


def bytes_per_worker(parameters, workers, stage):
    """Each stage divides more of the 16 bytes per parameter."""
    divided = {0: 0, 1: 8, 2: 12, 3: 16}[stage]
    return parameters * (16 - divided + divided / workers)


def bubble(stages, micro_batches):
    """Each stage works for m units, in a step of m + p - 1."""
    return (stages - 1) / (micro_batches + stages - 1)


bug = {"symptom": "the loss is higher than on one worker", "line": "line 21"}
