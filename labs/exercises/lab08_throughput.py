"""Lab 8: weak and strong scaling, Amdahl's share, and the input."""

from __future__ import annotations

from labs.exercises.judge import Question, Record, against_one, efficiency, newest, number, ratio, timed
from labs.results import laws

NOTEBOOK = "section 'A4 to A6: more workers' of notebooks/lab08_throughput.ipynb"
FREE = ("epochs",)
"""The rate leaves the first epoch out, and does not depend on how many there are."""


def _strong(records: list[Record]) -> list[Record]:
    return against_one(records, NOTEBOOK, strong=True, free=FREE)


def _serial(answer, runs: list[Record]) -> str:
    one, many = runs
    size, speedup = many["layout"]["size"], ratio(timed(many), timed(one))
    right = float(laws.amdahl_share(size, speedup))
    return number(answer, right, "share", "(1/S - 1/n) / (1 - 1/n), from S = 1 / (s + (1 - s) / n)", {
        "that is Gustafson's share, (n - S) / (n - 1), which is for weak scaling": (size - speedup) / (size - 1),
        "that is 1 - S/n, what is missing to full efficiency; Amdahl's s is a share of one worker's time":
            1 - speedup / size,
        "that is the efficiency": speedup / size,
        "that is the share that is divided; what is not is wanted": 1 - right,
        "that is the speedup": speedup,
    }, slack=0.005)


def _supplied(answer, runs: list[Record]) -> str:
    (run,) = runs
    rate, supply = timed(run), run["metrics"]["input_images_per_sec"]
    return number(answer, rate / supply, "share", "images_per_sec / input_images_per_sec", {
        "that is upside down: how many times as much the input could deliver": supply / rate,
        "that is the share that the training leaves": 1 - rate / supply,
    })


QUESTIONS = {
    "q1": Question("These runs are of one worker and of several, with the same batch per worker and threads. What is "
                   "the efficiency of this weak scaling?", "a share, from 0 to 1",
                   lambda records: against_one(records, NOTEBOOK, free=FREE),
                   lambda answer, runs: efficiency(answer, *runs)),
    "q2": Question("These have the same global batch. Which share `s` of one worker's time cannot be divided, by "
                   "Amdahl's law? (Below 0 or above 1, no share explains this speedup.)", "a number", _strong, _serial),
    "q3": Question("Which share of the images that the input alone can deliver does this run's training use? (Near 1, "
                   "the input is the limit.)", "a share, from 0 to 1",
                   lambda records: [newest(records, "a run with a measured input", "`labs run lab08_throughput`",
                                           lambda run: timed(run) and run["metrics"].get("input_images_per_sec"))],
                   _supplied),
}
