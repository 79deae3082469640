"""Questions of lab 8: weak and strong scaling, Amdahl's law, and the input pipeline."""

from __future__ import annotations

from labs.course import laws
from labs.course.exercises.grading import (
    Question,
    Record,
    grade_efficiency,
    grade_number,
    images_per_sec,
    newest,
    pair_with_one_worker,
    ratio,
)

NOTEBOOK = "section 'A4 to A6: more workers' of notebooks/lab08_throughput.ipynb"
MAY_DIFFER = ("epochs",)
"""The throughput leaves the first epoch out and does not depend on the number of epochs."""


def _serial(answer, runs: list[Record]) -> str:
    one, many = runs
    size, speedup = many["layout"]["size"], ratio(images_per_sec(many), images_per_sec(one))
    right = float(laws.amdahl_share(size, speedup))
    return grade_number(answer, right, "share", "(1/S - 1/n) / (1 - 1/n), from S = 1 / (s + (1 - s) / n)", {
        "that is Gustafson's share, (n - S) / (n - 1), which is for weak scaling": (size - speedup) / (size - 1),
        "that is 1 - S/n, one minus the efficiency; Amdahl's s is a share of one worker's time":
            1 - speedup / size,
        "that is the parallel share; the serial share is asked for": 1 - right,
    }, abs_tol=0.005)


def _input_share(answer, runs: list[Record]) -> str:
    (run,) = runs
    throughput, of_input = images_per_sec(run), run["metrics"]["input_images_per_sec"]
    return grade_number(answer, throughput / of_input, "share", "images_per_sec / input_images_per_sec", {
        "that is upside down: by what factor the input is faster than the training": of_input / throughput,
    })


QUESTIONS = {
    "q1": Question("These runs have the same batch per worker and the same threads, the first with one worker, the "
                   "second with several. What is the weak-scaling efficiency?", "a share, from 0 to 1",
                   pair_with_one_worker(NOTEBOOK, may_differ=MAY_DIFFER), grade_efficiency),
    "q2": Question("These runs have the same global batch. What share `s` of one worker's time is serial, by Amdahl's "
                   "law? (Below 0 or above 1, no share explains this speedup.)", "a number",
                   pair_with_one_worker(NOTEBOOK, strong=True, may_differ=MAY_DIFFER), _serial),
    "q3": Question("What share of the images that the input alone can deliver does this run's training use? (Near 1, "
                   "the input is the bottleneck.)", "a share, from 0 to 1",
                   newest("a run with a measured input", "`labs run lab08_throughput`", lambda run:
                          images_per_sec(run) and run["metrics"].get("input_images_per_sec")), _input_share),
}
