"""Exercises of lab 13: a step of ZeRO by hand, bytes that each worker keeps, the bubble of a pipeline."""

import statistics

import numpy as np

from labs.exercises.code_tasks import SHARDED, Call, StudentFunction, bug, close, code
from labs.exercises.grading import Question, grade_choice, grade_number
from labs.exercises.selecting import Record, multi_worker, newest

MEASURED = newest("the exchange of each method", "`labs run lab13_elsewhere --workers 2`",
                  lambda run: multi_worker(run) and run.get("tables", {}).get("rounds"))


def _median(run: Record, method: str, column: str) -> float:
    return statistics.median(row[column] for row in run["tables"]["rounds"] if row["method"] == method)


def _share(answer, run: Record) -> str:
    step, compute = (_median(run, "plain", column) for column in ("step_seconds", "compute_seconds"))
    return grade_number(answer, (step - compute) / step, "share",
                        "(step - compute) / step, of the medians over the rounds", {
        "that is the share of the computation": compute / step,
        "that divides by the computation; a share of the step is divided by the step": (step - compute) / compute,
        "that is in seconds; divide by those of the step": step - compute}, abs_tol=0.005)


def _longest(answer, run: Record) -> str:
    exchanges = {row["method"]: _median(run, row["method"], "step_seconds") - _median(run, row["method"],
                 "compute_seconds") for row in run["tables"]["rounds"]}
    right = max(exchanges, key=lambda method: exchanges[method])
    others = dict.fromkeys(exchanges, "another method has a larger difference between step and computation")
    return grade_choice(answer, {right}, others, "it has the largest median step minus median computation")


def _zero_bytes(answer, run: Record) -> str:
    parameters, size = run["metrics"]["parameters"], run["layout"]["size"]
    right = 8 * parameters + 8 * parameters / size
    return grade_number(answer, right, "bytes", "4 P for the weights, 4 P for the gradients, 8 P / N for the moments", {
        "that is without ZeRO: every worker keeps all moments": 16 * parameters,
        "that is stage 2, which divides the gradients as well": 4 * parameters + 12 * parameters / size,
        "that is stage 3, which divides everything": 16 * parameters / size,
        "that is the moments alone": 8 * parameters / size}, rel_tol=0.001)


QUESTIONS = {
    "q1": Question(MEASURED, _share, timed=True),
    "q2": Question(MEASURED, _longest, timed=True),
    "q3": Question(MEASURED, _zero_bytes),
}


def reference_adam(weights: np.ndarray, gradient: np.ndarray, moments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the new weights and moments of a part, as the function `adam` of the page's cell does."""
    first, second = 0.9 * moments[0] + 0.1 * gradient, 0.999 * moments[1] + 0.001 * gradient**2
    return weights - 0.1 * first / (np.sqrt(second) + 1e-3), np.stack([first, second])


def _grade_zero(run: StudentFunction) -> str:
    for size, part in ((1, 1), (2, 1), (3, 2), (4, 3)):
        weights = np.arange(1.0, size * part + 1)
        gradients = [np.cos(weights * (rank + 1)) + (run.rng.normal(size=size * part) if part > 1 else 0)
                     for rank in range(size)]
        moments = [np.full((2, part), 0.5 + rank) for rank in range(size)]
        call = run([weights.copy() for _ in range(size)], gradients, moments)
        call.expect(isinstance(call.value, list | tuple) and len(call.value) == 2, "the result is (weights, moments)")
        _expect_weights(call, weights, gradients, moments)
        _, right = _step_by_parts(weights, np.mean(gradients, axis=0), moments)
        kept = call.arrays(call.value[1], moments,
                           "the new moments are a list of one array per rank, 2 rows for its part")
        for rank, (mine, wanted) in enumerate(zip(kept, right, strict=True)):
            call.expect(close(mine, wanted), f"the moments of rank {rank} are not those that `adam` returned for part "
                                             f"{rank}")
    return "on one to four ranks the weights are those of a plain step, and each rank kept the moments of its part"


def _step_by_parts(weights: np.ndarray, gradient: np.ndarray, moments: list[np.ndarray]) -> tuple[np.ndarray, list]:
    """Return the weights and the moments of each part after a plain step with one gradient."""
    size = len(moments)
    parts = list(map(reference_adam, np.split(weights, size), np.split(gradient, size), moments))
    return np.concatenate([part for part, _ in parts]), [new for _, new in parts]


def _expect_weights(call: Call, weights: np.ndarray, gradients: list[np.ndarray], moments: list[np.ndarray]) -> None:
    """Raise AssertionError unless every rank has the weights of a plain step with the mean gradient."""
    size = len(gradients)
    found = call.arrays(call.value[0], [weights] * size, "the new weights are a list of one array of all weights per "
                        "rank: after the all-gather every rank has all parts")
    right, total = (_step_by_parts(weights, combine(gradients, axis=0), moments)[0] for combine in (np.mean, np.sum))
    for rank, mine in enumerate(found):
        parts, new = np.split(weights, size), np.split(right, size)
        parts[rank] = new[rank]
        call.expect_close(mine, right, f"the weights of rank {rank} are not those of a plain step with the mean "
                          "gradient, part by part", {
            "the weights are those of the sum of the gradients; a step takes their mean": total,
            f"rank {rank} used its own gradients only; reduce means that the ranks' gradients are averaged":
                _step_by_parts(weights, gradients[rank], moments)[0],
            f"rank {rank} has new weights in its own part only: the all-gather is missing": np.concatenate(parts)})


def _grade_bytes(run: StudentFunction) -> str:
    # Bytes per parameter that each stage divides among the workers.
    divideds = (0, 8, 12, 16)
    for stage in range(4):
        for parameters, workers in ((1, 1), (10, 2), (10**9, 8), (7 * 10**9, 64), (run.whole(10, 10**9), 16)):
            call = run(parameters, workers, stage)
            divided = divideds[stage]
            right = parameters * (16 - divided + divided / workers)
            call.expect_number(right, "what is not divided counts in full, what is divided for one worker", {
                "it counts numbers, not bytes: each has 4": right / 4,
                "it is of all workers together": right * workers,
                "it has one moment per parameter; Adam has two": right - parameters * 4 / (workers if stage else 1),
                "it has nothing but the part that is divided": parameters * divided / workers,
                "it divides nothing": 16 * parameters,
                "it divides everything; that is stage 3": 16 * parameters / workers})
    return "16 bytes per parameter, of which the stages divide 0, 8, 12 and 16"


def _grade_bubble(run: StudentFunction) -> str:
    for p, m in ((2, 3), (1, 1), (2, 1), (4, 8), (8, 8), (16, 1000), (run.whole(2, 20), run.whole(20, 99))):
        call = run(p, m)
        units = m + p - 1
        call.expect_number((p - 1) / units, "draw the units of each stage, and count those in which a worker waits", {
            "it is in percent; a share is a number from 0 to 1": 100 * (p - 1) / units,
            "it is the share in which a worker is busy": m / units,
            "it divides by the units in which a worker is busy; the step is longer": (p - 1) / m,
            "it has p idle units; the last stage starts after p - 1": p / units,
            "it has a step of m + p units; the last stage ends after m + p - 1": (p - 1) / (m + p)})
    return "p - 1 of m + p - 1 units, from one stage to sixteen"


TASKS = {
    "zero_step": code("weights, gradients, moments", _grade_zero),
    "bytes_per_worker": code("parameters, workers, stage", _grade_bytes),
    "bubble": code("stages, micro_batches", _grade_bubble),
    "bug": bug("the loss is higher than on one worker", 21, (
        "every worker updates the first part of the weights, with the gradients of its own part; the all-gather "
        "uses the results for every part"), {
        "the workers end with different weights": "the sums that the workers print are equal: all get the same parts",
        "some images are never used": "every image is in the shard of one worker",
        "it never ends": "both workers print their line and end"}, {
        17: SHARDED, 33: "each worker gets its own part of the mean gradient, part r on rank r",
        35: "that is Adam's second moment, of this worker's part",
        37: "every worker gets the parts of all, by rank; is each of them the part that it should be?"}),
}
