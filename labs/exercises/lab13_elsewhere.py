"""Exercises of lab 13: a step of ZeRO by hand, bytes that each worker keeps, the bubble of a pipeline."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

import numpy as np

from labs.exercises.code_tasks import (
    RIGHT,
    Call,
    StudentFunction,
    arrays,
    bug,
    close,
    code,
    number,
)
from labs.exercises.grading import Question, Record, grade_choice, grade_number, multi_worker, newest
from labs.exercises.timed import timed

MEASURED = newest("the exchange of each method", "`labs run lab13_elsewhere --workers 2`",
                  lambda run: multi_worker(run) and run.get("tables", {}).get("rounds"))


def _median(run: Record, method: str, column: str) -> float:
    return statistics.median(row[column] for row in run["tables"]["rounds"] if row["method"] == method)


def _exchange(run: Record, method: str) -> float:
    """Return a method's seconds of exchange per step: a difference of two medians."""
    return _median(run, method, "step_seconds") - _median(run, method, "compute_seconds")


def _share(answer, runs: list[Record]) -> str:
    (run,) = runs
    step, compute = (_median(run, "plain", column) for column in ("step_seconds", "compute_seconds"))
    return grade_number(answer, (step - compute) / step, "share",
                        "(step - compute) / step, of the medians over the rounds", {
        "that is the share of the computation": compute / step,
        "that divides by the computation; a share of the step is divided by the step": (step - compute) / compute,
        "that is in seconds; divide by those of the step": step - compute,
    }, abs_tol=0.005)


def _longest(answer, runs: list[Record]) -> str:
    (run,) = runs
    exchanges = {row["method"]: _exchange(run, row["method"]) for row in run["tables"]["rounds"]}
    right = max(exchanges, key=lambda method: exchanges[method])
    others = dict.fromkeys(exchanges, "another method has a larger difference between step and computation")
    return grade_choice(answer, {right}, others, "it has the largest median step minus median computation")


def _kept(answer, runs: list[Record]) -> str:
    (run,) = runs
    parameters, size = run["metrics"]["parameters"], run["layout"]["size"]
    right = 8 * parameters + 8 * parameters / size
    return grade_number(answer, right, "bytes", "4 P for the weights, 4 P for the gradients, 8 P / N for the moments", {
        "that is without ZeRO: every worker keeps all moments": 16 * parameters,
        "that is stage 2, which divides the gradients as well": 4 * parameters + 12 * parameters / size,
        "that is stage 3, which divides everything": 16 * parameters / size,
        "that is the moments alone": 8 * parameters / size,
    }, rel_tol=0.001)


QUESTIONS = {
    "q1": Question("Which share of a step of the method `plain` is exchange in this run? Take the medians of "
                   "`step_seconds` and `compute_seconds` in the table `rounds`.", "a share, from 0 to 1", MEASURED,
                   timed(_share)),
    "q2": Question("Which method spends the most time per step on its exchange in this run, by the same two medians?",
                   "a `method` of the table `rounds`", MEASURED, timed(_longest)),
    "q3": Question("The workers of this run switch to Adam and ZeRO, stage 1. How many bytes of weights, gradients and "
                   "moments does each keep? Take `parameters` from the metrics.", "a number of bytes", MEASURED, _kept),
}


# Code.

def zero_step(weights, gradients, moments, adam):
    """Take a step of ZeRO, stage 1, and return `(weights, moments)`.

    Every rank has all weights, which are cut into N equal parts. Rank r has
    the moments of part r only.

    1. Reduce-scatter: rank r gets part r of the mean gradient of all ranks.
    2. Rank r calls `adam` for part r.
    3. All-gather: every rank gets the new weights of all parts.

    Args:
        weights: `weights[rank]`, an array; the same numbers on all ranks.
        gradients: `gradients[rank]`, an array of the same length.
        moments: `moments[rank]`, an array of 2 rows for the rank's part.
        adam: `adam(weights, gradient, moments)` returns the new weights and
            the new moments of a part.

    Returns:
        The new weights of each rank, a list of N arrays, and the new moments
        of each rank, a list of N arrays.
    """
    ...  # YOUR CODE


class _Adam:
    """Adam's update of a part, without bias correction; keeps the lengths of the parts."""

    def __init__(self) -> None:
        self.lengths: list[int] = []

    def __repr__(self) -> str:
        return "adam"

    def __call__(self, weights, gradient, moments):
        weights, gradient, moments = (np.asarray(value, float) for value in (weights, gradient, moments))
        self.lengths.append(weights.size)
        if not weights.shape == gradient.shape == moments.shape[1:]:
            raise ValueError(f"adam got {weights.size} weights, {gradient.size} gradients and moments of "
                             f"{moments.shape[-1]} weights")
        first, second = 0.9 * moments[0] + 0.1 * gradient, 0.999 * moments[1] + 0.001 * gradient**2
        return weights - 0.1 * first / (np.sqrt(second) + 1e-3), np.array([first, second])


def _grade_zero(run: StudentFunction) -> str:
    for size, part in ((1, 1), (2, 1), (3, 2), (4, 3)):
        weights = np.arange(1.0, size * part + 1)
        gradients = [np.cos(weights * (rank + 1)) + (run.rng.normal(size=size * part) if part > 1 else 0)
                     for rank in range(size)]
        moments = [np.full((2, part), 0.5 + rank) for rank in range(size)]
        call = run([weights.copy() for _ in range(size)], gradients, moments, _Adam())
        parts = [slice(rank * part, (rank + 1) * part) for rank in range(size)]
        _expect_zero(call, weights, gradients, moments, parts)
    return "on one to four ranks the weights are those of a plain step, and each rank kept the moments of its part"


def _expect_zero(call: Call, weights: np.ndarray, gradients: list[np.ndarray], moments: list[np.ndarray],
                 parts: list[slice]) -> None:
    """Raise AssertionError unless weights and moments are those of a plain step."""
    def after(gradient):
        return [_Adam()(weights[each], gradient[each], mine) for each, mine in zip(parts, moments, strict=True)]

    size = len(gradients)
    call.expect(isinstance(call.value, list | tuple) and len(call.value) == 2, "the result is (weights, moments)")
    held, kept = (arrays(value, like) for value, like in zip(
        call.value, ([weights] * size, [np.zeros((2, weights.size // size))] * size), strict=True))
    call.expect(held is not None, "the new weights are a list of one array of all weights per rank: after the "
                                  "all-gather every rank has all parts")
    call.expect(kept is not None, "the new moments are a list of one array per rank, 2 rows for its part")
    held, kept = held or [], kept or []
    mean = np.mean(gradients, axis=0)
    right = np.concatenate([part for part, _ in after(mean)])
    total = np.concatenate([part for part, _ in after(np.sum(gradients, axis=0))])
    for rank, mine in enumerate(held):
        own = np.concatenate([part for part, _ in after(gradients[rank])])
        call.expect(size == 1 or not close(mine, total), "the weights are those of the sum of the gradients; a step "
                                                         "takes their mean")
        call.expect(size == 1 or not close(mine, own), f"rank {rank} used its own gradients only; reduce means that "
                                                       "the ranks' gradients are averaged")
        changed = [not close(mine[part], weights[part]) for part in parts]
        call.expect(size == 1 or changed != [other == rank for other in range(size)],
                    f"rank {rank} has new weights in its own part only: the all-gather is missing")
        call.expect(close(mine, right), f"the weights of rank {rank} are not those of a plain step with the mean "
                                        "gradient, part by part")
    for rank, (mine, (_, wanted)) in enumerate(zip(kept, after(mean), strict=True)):
        call.expect(close(mine, wanted), f"the moments of rank {rank} are not those that `adam` returned for part "
                                         f"{rank}")
    call.expect(sum(call.args[3].lengths) == weights.size, "`adam` was called for "
                f"{sum(call.args[3].lengths)} weights in all; each weight is updated by one rank")


def bytes_per_worker(parameters, workers, stage):
    """Return the bytes that a worker keeps in training with Adam.

    A parameter has a weight (4 bytes), a gradient (4) and two moments (8).
    Stage 0 is plain data parallelism. ZeRO divides among the workers: in
    stage 1 the moments, in stage 2 also the gradients, in stage 3 also the
    weights. Activations are left out.

    Args:
        parameters: P, number of parameters.
        workers: N.
        stage: 0, 1, 2 or 3.
    """
    ...  # YOUR CODE


DIVIDED = (0, 8, 12, 16)
"""Bytes per parameter that each stage divides among the workers."""


def _grade_bytes(run: StudentFunction) -> str:
    for stage in range(4):
        for parameters, workers in ((1, 1), (10, 2), (10**9, 8), (7 * 10**9, 64), (run.whole(10, 10**9), 16)):
            call = run(parameters, workers, stage)
            value, divided = number(call.value), DIVIDED[stage]
            call.expect(value is not None, "a number of bytes")
            right = parameters * (16 - divided + divided / workers)
            hints: Mapping[str, Any] = {
                "counts numbers, not bytes: each has 4": right / 4,
                "is of all workers together": right * workers,
                "has one moment per parameter; Adam has two": right - parameters * 4 / (workers if stage else 1),
                "has nothing but the part that is divided": parameters * divided / workers,
                "divides nothing": 16 * parameters,
                "divides everything; that is stage 3": 16 * parameters / workers,
            }
            hint = next((text for text, wrong in hints.items() if close(value, wrong)), "is wrong")
            call.expect(close(value, right), f"it {hint}")
    return "16 bytes per parameter, of which the stages divide 0, 8, 12 and 16"


def bubble(stages, micro_batches):
    """Return the share of a step in which a worker of a pipeline waits.

    Each of p workers holds one stage of the network. A batch is cut into m
    micro-batches, which go through the stages one after another. A stage
    takes one unit of time for the forward pass of a micro-batch. All workers
    are held from the first unit of the first stage to the last unit of the
    last. The backward passes take the same schedule in reverse.

    Args:
        stages: p.
        micro_batches: m.
    """
    ...  # YOUR CODE


def _grade_bubble(run: StudentFunction) -> str:
    for p, m in ((2, 3), (1, 1), (2, 1), (4, 8), (8, 8), (16, 1000), (run.whole(2, 20), run.whole(20, 99))):
        call = run(p, m)
        value, units = number(call.value), m + p - 1
        call.expect(value is not None, "a share is a number")
        hints = {"is in percent; a share is a number from 0 to 1": 100 * (p - 1) / units,
                 "is the share in which a worker is busy": m / units,
                 "divides by the units in which a worker is busy; the step is longer": (p - 1) / m,
                 "has p idle units; the last stage starts after p - 1": p / units,
                 "has a step of m + p units; the last stage ends after m + p - 1": (p - 1) / (m + p)}
        hint = next((text for text, wrong in hints.items() if close(value, wrong)), "is wrong")
        call.expect(close(value, (p - 1) / units), f"it {hint}")
    return "p - 1 of m + p - 1 units, from one stage to sixteen"


TASKS = {
    "zero_step": code("Write a step of ZeRO, stage 1, for N ranks at once.", zero_step, _grade_zero),
    "bytes_per_worker": code("Write the function that says how many bytes each worker keeps.", bytes_per_worker,
                             _grade_bytes),
    "bubble": code("Write the function that says how long a worker of a pipeline waits.", bubble, _grade_bubble),
    "bug": bug("lab13", before="The script is the first stage of ZeRO, in numpy and two calls of Horovod.",
               how="Then type `labs launch 1 debugging/lab13.py`, and compare.", symptoms={
        "the workers end with different weights": "the sums that the workers print are equal: all get the same parts",
        "the loss is higher than on one worker": RIGHT,
        "some images are never used": "every image is in the shard of one worker",
        "it never ends": "both workers print their line and end",
    }, lines={
        17: "each worker takes every size-th image: together they take all of them",
        21: RIGHT,
        33: "each worker gets its own part of the mean gradient, part r on rank r",
        35: "that is Adam's second moment, of this worker's part",
        37: "every worker gets the parts of all, by rank; is each of them the part that it should be?",
    }, reason="every worker updates the first part of the weights, with the gradients of its own part; the all-gather "
              "uses the results for every part"),
}
