"""Questions of lab 2: speedup, efficiency, number of steps, training without sharding."""

from __future__ import annotations

import math

from labs.course.exercises.grading import (
    Question,
    Record,
    grade_efficiency,
    grade_number,
    grade_speedup,
    images_per_sec,
    multi_worker,
    newest,
    pair_with_one_worker,
)

M3 = "section 'M3: accuracy, time, speedup' of notebooks/lab02_horovod.ipynb"
"""Makes a comparable pair: without GPUs, one worker gets as many threads as each of several."""
PAIR = pair_with_one_worker(M3)
SEVERAL = newest("several workers", "`labs run lab02_horovod --workers 2`",
                 lambda run: multi_worker(run) and images_per_sec(run))


def _steps(answer, runs: list[Record]) -> str:
    (run,) = runs
    images, batch, size = run["history"][0]["images"], run["config"]["batch_size"], run["layout"]["size"]
    right = math.ceil(images / (batch * size))
    return grade_number(answer, right, "steps", "training images / (batch size x hvd.size()), rounded up", {
        "that is what one worker alone would take; a step trains on the batches of all workers":
            math.ceil(images / batch),
        "that adds up the steps of all workers; they take each step together": right * size,
        "that leaves out the last step, on the remaining images": images // (batch * size),
        "that is not rounded up: the remaining images make a step, too": images / (batch * size),
    }, rel_tol=1e-6)


def _seen(answer, runs: list[Record]) -> str:
    size = runs[0]["layout"]["size"]
    missed = (1 - 1 / size) ** size
    return grade_number(answer, 1 - missed, "share", f"1 - (1 - 1/N)^N with N = {size}", {
        "that is the share that no worker sees": missed,
        "that is the share of one worker; the others see some images that it does not see": 1 / size,
        "that is the result of sharding; here, each worker draws without knowing what the others draw": 1,
    }, rel_tol=0.005)


QUESTIONS = {
    "q1": Question("These runs have the same settings, the first with one worker, the second with several. What is "
                   "the speedup by `images_per_sec`?", "a number", PAIR, grade_speedup),
    "q2": Question("What is the scaling efficiency of the same two runs, by `images_per_sec`?",
                   "a share; 1 is ideal", PAIR, grade_efficiency),
    "q3": Question("How many steps per epoch does each worker of this run take? The last step is padded, so round up.",
                   "a number of steps", SEVERAL, _steps),
    "q4": Question("Suppose this run's data were not sharded: each of the N workers shuffles all images on its own and "
                   "takes 1/N of them. What share of the images would be seen in an epoch, on average?",
                   "a share, from 0 to 1", SEVERAL, _seen),
}
