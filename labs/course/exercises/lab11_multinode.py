"""Questions of lab 11: settings on several nodes, the exchange in a step, differences beyond noise."""

from __future__ import annotations

import math

from labs.course.exercises.grading import (
    Question,
    Record,
    grade_entries,
    grade_number,
    images_per_sec,
    multi_worker,
    newest,
    pair_with_one_worker,
)

COMMAND = "`labs run lab11_multinode --workers 2`"
NOTEBOOK = "section 'Here: one node' of notebooks/lab11_multinode.ipynb"
NODES, WORKERS_PER_NODE = 4, 2


def _plan(answer, runs: list[Record]) -> str:
    (run,) = runs
    config, images = run["config"], run["history"][0]["images"]
    batch, base, lr = (config[name] for name in ("batch_size", "base_batch_size", "base_lr"))
    size = NODES * WORKERS_PER_NODE

    def steps(workers: int) -> int:
        return math.ceil(images / (batch * workers))

    def counted(of) -> dict[str, float]:
        return {"that counts nodes; hvd.size() counts the workers of all nodes": of(NODES),
                "that counts the workers of one node, hvd.local_size()": of(WORKERS_PER_NODE),
                "that is for one worker": of(1)}

    return grade_entries(answer, {
        "global_batch_size": lambda value: grade_number(
            value, batch * size, "images", "batch_size x hvd.size()", counted(lambda n: batch * n), rel_tol=1e-6),
        "scaled_lr": lambda value: grade_number(
            value, lr * batch * size / base, "learning rate", "base_lr x global batch / base_batch_size",
            counted(lambda n: lr * batch * n / base) |
            {"k is global batch / base_batch_size, not the number of workers": lr * size}, rel_tol=1e-3),
        "steps_per_epoch": lambda value: grade_number(
            value, steps(size), "steps", "training images / global batch, rounded up", counted(steps) |
            {"that is not rounded up: the remaining images make a step, too": images / (batch * size),
             "that leaves out the last, smaller step": images // (batch * size)}, rel_tol=1e-6),
    })


def _share(answer, runs: list[Record]) -> str:
    (run,) = runs
    layout, exchange = run["layout"], run["metrics"]["allreduce_seconds"]
    step = layout["global_batch_size"] / images_per_sec(run)
    return grade_number(answer, exchange / step, "share", "allreduce_seconds / (global batch / images_per_sec)", {
        "that uses the batch of one worker; images_per_sec is the throughput of all workers":
            exchange / step * layout["size"],
        "that is upside down": step / exchange,
        "that is relative to an epoch; the exchange happens in each step":
            exchange / run["timings"]["seconds_per_epoch"],
    })


def _has_errors(run: Record) -> bool:
    """Return whether some test images were misclassified: for an accuracy of 1, the standard error would be 0."""
    return bool(run["metrics"].get("test_images")) and 0 < run["metrics"]["test_accuracy"] < 1


def _noise(answer, runs: list[Record]) -> str:
    accuracies = [run["metrics"]["test_accuracy"] for run in runs]
    variances = [p * (1 - p) / run["metrics"]["test_images"] for p, run in zip(accuracies, runs, strict=True)]
    difference = abs(accuracies[1] - accuracies[0])
    right = difference / math.sqrt(sum(variances))
    return grade_number(answer, right, "standard errors", "|p1 - p2| / sqrt(p1 (1 - p1) / n + p2 (1 - p2) / n)", {
        "that is in standard errors of one accuracy; the difference of two is more uncertain":
            difference / math.sqrt(variances[0]),
        "that adds the two standard errors; their squares add": difference / sum(map(math.sqrt, variances)),
        "that is the difference itself": difference,
    }, abs_tol=0.02)


QUESTIONS = {
    "q1": Question(f"This run's settings are used on {NODES} nodes with {WORKERS_PER_NODE} workers each. What are "
                   "the global batch, the learning rate by the linear rule, and the steps per epoch?",
                   '`{"global_batch_size": ..., "scaled_lr": ..., "steps_per_epoch": ...}`',
                   newest("a run", COMMAND, lambda run: run["history"]), _plan),
    "q2": Question("What share of a step of this run would the exchange take, if none of it overlapped with "
                   "computing?", "a share, from 0 to 1",
                   newest("several workers", COMMAND, lambda run: multi_worker(run) and images_per_sec(run) and
                          run["metrics"].get("allreduce_seconds")), _share),
    "q3": Question("How far apart are the test accuracies of these two runs, in standard errors of their difference? "
                   "(Below 2 it is noise.)", "a number",
                   pair_with_one_worker(NOTEBOOK, accept=_has_errors), _noise),
}
