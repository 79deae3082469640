"""Lab 1: steps, the time of a full run, throughput by batch size, the line through the steps."""

from __future__ import annotations

import math
from numbers import Real

import numpy as np

from labs.exercises.judge import Question, Record, choice, missing, newest, number, parts, ratio, timed
from labs.measure.throughput import seconds_per_step

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


def _line(sizes: np.ndarray, milliseconds: np.ndarray, weights: np.ndarray | None) -> dict[str, float]:
    """Return `a` and `c` of the line a + c b, and what it gives for a step of 256 images, in milliseconds."""
    c, a = np.polyfit(sizes, milliseconds, 1, w=weights)
    return {"a": a, "c": c, "step": a + 256 * c}


def _fitted(answer, runs: list[Record]) -> str:
    sizes = np.array([run["config"]["batch_size"] for run in runs])
    steps = np.array([1000 * (seconds_per_step(run["history"]) or math.nan) for run in runs])
    assert np.isfinite(steps).all(), f"a run has no measured steps; {M1} makes them"
    right = _line(sizes, steps, 1 / steps)
    assert right["a"] > 0, ("the line through these runs has a negative a, and no step costs less than nothing before "
                            f"its first image: was something else running? Repeat {M1}")
    by_rate, unweighted = _line(sizes, 1000 * sizes / [timed(run) for run in runs], None), _line(sizes, steps, None)
    texts = {"a": ("ms", "a of the line a + c b through 1000 x train_seconds / steps, weighted by 1 / t"),
             "c": ("ms per image", "c of the line a + c b through 1000 x train_seconds / steps, weighted by 1 / t"),
             "step": ("ms", "a + 256 c of the same line")}
    swapped = {"a": {"that is c, the time of an image": right["c"]},
               "c": {"that is a, what a step costs before its first image": right["a"]},
               "step": {"that leaves out a, what a step costs before its first image": 256 * right["c"],
                        "that is 256 times the best time per image, as if a step cost nothing before its first":
                            256 * min(steps / sizes)}}

    def judge(name: str):
        unit, formula = texts[name]
        mistakes = swapped[name] | {
            "that is through 1000 b / images_per_sec, which is not a measured step: the last batch of an epoch is "
            "padded, and padding takes time but is not counted as images": by_rate[name],
            "that is a fit without weights: it follows the largest batch, whose error in ms is the largest":
                unweighted[name]}

        def judged(value) -> str:
            assert not (isinstance(value, Real) and value < 0), (
                "this cannot be negative: no part of a step takes less than no time. Use measured steps "
                "(train_seconds / steps of the epochs after the first), and give each the weight 1 / t, or the largest "
                "batch decides alone")
            return number(value, right[name], unit, formula, mistakes)

        return judged

    return parts(answer, {name: judge(name) for name in right})


QUESTIONS = {
    "q1": Question("How many steps would this run take if it had 40 epochs?", "a number of steps", _newest, _steps),
    "q2": Question("At the throughput of this run, how long would report M's full run take: 40 epochs of 60,000 "
                   "images?", "a number, in minutes", _newest, _minutes),
    "q3": Question("Of these runs, one for each batch size: which batch size has the highest throughput?",
                   "a batch size", lambda records: _by_batch(records, 2), _fastest),
    "q4": Question("Put a straight line `a + c b` through the measured milliseconds per step `t` of these runs over "
                   "their batch size `b`. `t` is `1000 * train_seconds / steps` of all epochs but the first; its error "
                   "grows with `t`, so each point gets the weight `1 / t` (`np.polyfit(b, t, 1, w=1 / t)`). What are "
                   "`a` and `c`, and how long should a step of 256 images take?",
                   '`{"a": ..., "c": ..., "step": ...}`, in ms', lambda records: _by_batch(records, 3), _fitted),
}
