"""Lab 2: speedup, efficiency, steps, and what is not sharded."""

from __future__ import annotations

import math

from labs.exercises.judge import Question, Record, against_one, efficiency, newest, number, several, speedup, timed

M3 = "section 'M3: accuracy, time, speedup' of notebooks/lab02_horovod.ipynb"
"""Makes the pair: on a machine without GPUs, one worker gets as many threads as each of several."""


def _pair(records: list[Record]) -> list[Record]:
    return against_one(records, M3)


def _several(records: list[Record]) -> list[Record]:
    return [newest(records, "several workers", "`labs run lab02_horovod --workers 2`", lambda run: several(run) and
                   timed(run))]


def _steps(answer, runs: list[Record]) -> str:
    (run,) = runs
    images, batch, size = run["history"][0]["images"], run["config"]["batch_size"], run["layout"]["size"]
    right = math.ceil(images / (batch * size))
    return number(answer, right, "steps", "training images / (batch size x hvd.size()), rounded up", {
        "that is what one worker alone would take; a step here trains on the batches of all workers":
            math.ceil(images / batch),
        "that counts the steps of all workers; they take each step together": right * size,
        "that leaves out the last step, on what is left over": images // (batch * size),
        "that is not rounded up: the images that are left over make a step, too": images / (batch * size),
        "that is the steps of all epochs": right * run["config"]["epochs"],
    }, tolerance=1e-6)


def _seen(answer, runs: list[Record]) -> str:
    size = runs[0]["layout"]["size"]
    missed = (1 - 1 / size) ** size
    return number(answer, 1 - missed, "share", f"1 - (1 - 1/N)^N with N = {size}", {
        "that is the share that nobody sees": missed,
        "that is one worker's part; the others see some of what it does not": 1 / size,
        "that is what sharding would give: each draws without knowing what the others draw": 1,
    }, tolerance=0.005)


QUESTIONS = {
    "q1": Question("These are a run of one worker and one of several, with the same settings. What is the speedup?",
                   "a number", _pair, lambda answer, runs: speedup(answer, *runs)),
    "q2": Question("What is the scaling efficiency of the same two runs?", "a share, from 0 to 1",
                   _pair, lambda answer, runs: efficiency(answer, *runs)),
    "q3": Question("How many steps does each worker of this run take in an epoch?", "a number of steps",
                   _several, _steps),
    "q4": Question("Suppose nobody had sharded this run's data: each of its workers shuffles all images for itself and "
                   "takes its number of steps. Which share of the images would an epoch see?", "a share, from 0 to 1",
                   _several, _seen),
}
