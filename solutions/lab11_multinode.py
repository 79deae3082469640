"""Lab 11."""

import dataclasses
import math

from labs import lab11_multinode as lab


def q1(runs):
    """All three follow from hvd.size() = nodes x workers per node."""
    (run,) = runs
    config = dataclasses.replace(lab.Config(**run["config"]), scaling="linear")
    plan = lab.plan(config, run["history"][0]["images"], size=4 * 2)
    return {name: plan[name] for name in ("global_batch_size", "scaled_lr", "steps_per_epoch")}


def q2(runs):
    """A step takes global batch / images_per_sec of all workers."""
    (run,) = runs
    step = run["layout"]["global_batch_size"] / run["timings"]["images_per_sec"]
    return run["metrics"]["allreduce_seconds"] / step


def q3(runs):
    """Both accuracies are uncertain, so the squares of their standard errors add."""
    (p, n), (q, m) = ((run["metrics"]["test_accuracy"], run["metrics"]["test_images"]) for run in runs)
    return abs(p - q) / math.sqrt(p * (1 - p) / n + q * (1 - q) / m)
