"""Lab 1: steps, the time of a full run, the rate by batch size."""

from __future__ import annotations

import math

import numpy as np

from labs.exercises.judge import Question, Record, choice, missing, newest, number, ratio, timed

EPOCHS, IMAGES = 40, 60_000
"""The report's full run."""
M1 = "section 'M1: how busy' of notebooks/lab01_baseline.ipynb"
COMMAND = "`labs run lab01_baseline --workers 1`"


def _newest(records: list[Record]) -> list[Record]:
    return [newest(records, "a run of two epochs or more", COMMAND, timed)]


def _by_batch(records: list[Record], least: int) -> list[Record]:
    """Return the newest run of each batch size, on the data of the newest of all, by batch size."""
    (last,) = _newest(records)
    alike = [run for run in records if timed(run) and run["config"]["data"] == last["config"]["data"]]
    found = {run["config"]["batch_size"]: run for run in alike}
    if len(found) < least:
        raise missing(f"{least} batch sizes (there are {len(found)})", M1)
    return [found[size] for size in sorted(found)]


def _steps(answer, runs: list[Record]) -> str:
    (run,) = runs
    images, size = run["history"][0]["images"], run["config"]["batch_size"]
    each = math.ceil(images / size)
    return number(answer, EPOCHS * each, "steps", "epochs x (training images / batch size, rounded up)", {
        "that divides the images of all epochs by the batch size; but each epoch ends with a smaller batch of its own":
            EPOCHS * images / size,
        "that leaves out the last, smaller batch of each epoch": EPOCHS * (images // size),
        "that is the steps of the run as it was": sum(row["steps"] for row in run["history"]),
        "that is the steps of one epoch": each,
    }, tolerance=1e-6)


def _minutes(answer, runs: list[Record]) -> str:
    (run,) = runs
    rate, history = timed(run), run["history"]
    images, seconds = (sum(row[name] for row in history) for name in ("images", "train_seconds"))
    right = EPOCHS * IMAGES / rate / 60
    return number(answer, right, "minutes", f"{EPOCHS} x {IMAGES} images / images_per_sec / 60", {
        "that is in seconds": 60 * right,
        "that is in hours": right / 60,
        "that is the time of one epoch": right / EPOCHS,
        "that is by a rate that includes the first epoch, in which the model is traced":
            EPOCHS * IMAGES * ratio(seconds, images) / 60,
    })


def _fastest(answer, runs: list[Record]) -> str:
    rates = {run["config"]["batch_size"]: timed(run) for run in runs}
    busy = {run["config"]["batch_size"]: run["metrics"].get("cpu_percent", 0) for run in runs}
    right = {size for size, rate in rates.items() if rate > 0.97 * max(rates.values())}
    others = dict.fromkeys(rates, "another batch size has more images_per_sec")
    others[min(rates)] = "its steps are the shortest, but a step of so few images costs nearly as much as a larger one"
    others[max(rates)] = "the largest batch is not always the fastest: compare images_per_sec"
    busiest = max(busy, key=lambda size: busy[size])
    others[busiest] = "it keeps the machine busiest; but busy is not fast: compare images_per_sec"
    return choice(answer, right, others, "busy is not the aim, images per second are")


def _fitted(answer, runs: list[Record]) -> str:
    sizes = np.array([run["config"]["batch_size"] for run in runs])
    steps = 1000 * sizes / [timed(run) for run in runs]
    each, fixed = np.polyfit(sizes, steps, 1)
    return number(answer, fixed + 256 * each, "ms", "a + 256 c of the line a + c b through 1000 b / images_per_sec", {
        "that leaves out a, what a step costs before its first image": 256 * each,
        "that is the time of an image, c": each,
        "that is a alone, what a step costs before its first image": fixed,
        "that is 256 images at the highest rate, as if a step cost nothing before its first image":
            256 * min(steps / sizes),
    })


QUESTIONS = {
    "q1": Question("How many steps would this run take if it had 40 epochs?", "a number of steps", _newest, _steps),
    "q2": Question("At the rate of this run, how long would the report's full run take: 40 epochs of 60,000 images?",
                   "a number, in minutes", _newest, _minutes),
    "q3": Question("Of these runs, one for each batch size: which batch size has the highest rate?",
                   "a batch size", lambda records: _by_batch(records, 2), _fastest),
    "q4": Question("Put a straight line `a + c b` through the milliseconds per step of these runs over their batch "
                   "size `b` (`np.polyfit`). How long should a step of 256 images take?",
                   "a number, in ms", lambda records: _by_batch(records, 3), _fitted),
}
