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


def plan(nodes, tasks, batch_size, images, lr, base_batch, rule):
    """hvd.size() = nodes x tasks decides the batch, and the batch decides the learning rate and the steps."""
    global_batch_size = nodes * tasks * batch_size
    k = global_batch_size / base_batch
    factor = {"linear": k, "sqrt": math.sqrt(k), "none": 1}[rule]
    return {"global_batch_size": global_batch_size, "scaled_lr": lr * factor,
            "steps_per_epoch": math.ceil(images / global_batch_size)}


def step(nodes, compute, nbytes, bits_per_second):
    """Each node sends 2 (N - 1) chunks of 1 / N of the gradients."""
    return compute + 2 * (nodes - 1) / nodes * 8 * nbytes / bits_per_second


def start_times(jobs, nodes):
    """A job can only start at 0 or when another one ends; the first of these moments that fits is its start."""
    starts = []
    for wanted, limit in jobs:
        placed = [(start, start + length, count) for start, (count, length) in zip(starts, jobs, strict=False)]

        def fits(start, wanted=wanted, limit=limit, placed=placed):
            moments = [start, *(begin for begin, _, _ in placed if start < begin < start + limit)]
            busy = (sum(count for begin, end, count in placed if begin <= moment < end) for moment in moments)
            return all(count + wanted <= nodes for count in busy)

        starts.append(min(start for start in [0, *(end for _, end, _ in placed)] if fits(start)))
    return starts


bug = {"symptom": "every node trains on all images", "line": "line 29"}
