"""Questions of lab 6: memory that each worker needs in full, memory that is divided, memory per image."""

from __future__ import annotations

import numpy as np

from labs.course.exercises.grading import Question, Record, grade_entries, grade_number, multi_worker, newest

RUN = "labs run lab06_memory"
MIB = 2**20


def _tried(run: Record) -> list[dict]:
    """Return those trials of a batch size search that fit into memory."""
    return [row for row in run.get("tables", {}).get("trials", []) if row.get("batch_size") and row["fits"]]


def _fixed(answer, runs: list[Record]) -> str:
    (run,) = runs
    count, size = run["metrics"]["parameters"], run["layout"]["size"]
    right = 16 * count / MIB
    mistakes = {
        "that is the weights alone; gradients and Adam's two moments have as many numbers each": right / 4,
        "that leaves out the optimizer: Adam keeps two numbers for each parameter": right / 2,
        "that leaves out the gradients, or one of Adam's two moments": right * 3 / 4,
    }
    if size > 1:
        mistakes["data parallelism does not divide the model: each worker holds all of it"] = right / size
    formula = "4 numbers for each parameter x 4 bytes / 2^20, on every worker"
    return grade_number(answer, right, "MiB", formula, mistakes, rel_tol=0.01)


def _held(answer, runs: list[Record]) -> str:
    size = runs[0]["layout"]["size"]
    model = {"data parallelism does not divide the model: each worker holds all of it": 1 / size}
    batch = {"each worker processes its own share of a step's images": 1}
    return grade_entries(answer, {
        "parameters": lambda value: grade_number(value, 1, "share", "all parameters, on every worker", model),
        "images": lambda value: grade_number(value, 1 / size, "share", "batch_size / global batch", batch),
    })


def _slope(answer, runs: list[Record]) -> str:
    rows = _tried(runs[0])
    images, peaks = (np.array([float(row[name]) for row in rows]) for name in ("batch_size", "peak_mb"))
    each, start = np.polyfit(images, peaks, 1)
    most = images.argmax()
    formula = "the slope of a line through peak_mb as a function of batch_size, of the trials that fit"
    return grade_number(answer, each, "MiB", formula, {
        "that divides the whole peak by the number of images; it includes TensorFlow and the weights at any batch size":
            peaks[most] / images[most],
        "that is the line's intercept, the memory without images": start,
        "that is upside down: images per MiB": 1 / each,
    }, rel_tol=0.03)


QUESTIONS = {
    "q1": Question("How much memory do the weights, the gradients and Adam's two moments of this run's network take on "
                   "each worker, in float32?", "a number, in MiB (2^20 bytes)",
                   newest("a network", f"`{RUN}`", lambda run: run["metrics"].get("parameters")), _fixed),
    "q2": Question("What share of the network's parameters, and what share of a step's images, does each worker of "
                   "this run hold?", '`{"parameters": ..., "images": ...}`, shares from 0 to 1',
                   newest("several workers", f"`{RUN} --workers 2 --batch-size 32`",
                          lambda run: multi_worker(run) and run["metrics"].get("parameters")), _held),
    "q3": Question("How much memory does one more image per batch take? Fit a straight line to the trials of this "
                   "search that fit into memory (table `trials`).", "a number, in MiB per image",
                   newest("a search for the largest batch", f"`{RUN} --search batch_size`",
                          lambda run: not multi_worker(run) and len(_tried(run)) > 1), _slope),
}
