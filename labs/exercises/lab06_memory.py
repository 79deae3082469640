"""Lab 6: what every worker holds in full, what is shared, and what an image costs."""

from __future__ import annotations

import numpy as np

from labs.exercises.judge import Question, Record, newest, number, parts, several

RUN = "labs run lab06_memory"
MIB = 2**20


def _any(records: list[Record]) -> list[Record]:
    return [newest(records, "a network", f"`{RUN}`", lambda run: run["metrics"].get("parameters"))]


def _several(records: list[Record]) -> list[Record]:
    return [newest(records, "several workers", f"`{RUN} --workers 2 --batch-size 32`",
                   lambda run: several(run) and run["metrics"].get("parameters"))]


def _tried(run: Record) -> list[dict]:
    """Return the trials of a search for the largest batch that did fit."""
    return [row for row in run.get("tables", {}).get("trials", []) if row.get("batch_size") and row["fits"]]


def _search(records: list[Record]) -> list[Record]:
    return [newest(records, "a search for the largest batch", f"`{RUN} --search batch_size`",
                   lambda run: not several(run) and len(_tried(run)) > 1)]


def _fixed(answer, runs: list[Record]) -> str:
    (run,) = runs
    count, size = run["metrics"]["parameters"], run["layout"]["size"]
    right = 16 * count / MIB
    mistakes = {
        "that is the weights alone; gradients and two moments of Adam have as many numbers each": right / 4,
        "that leaves out the optimizer: Adam keeps two numbers for each parameter": right / 2,
        "that leaves out the gradients, or one of Adam's two moments": right * 3 / 4,
        "that is in MB of a million bytes; a MiB has 2^20": 16 * count / 1e6,
        "that is a count of numbers; each has 4 bytes": right / 4 * MIB / 4,
    }
    if size > 1:
        mistakes["data parallelism does not divide the model: each worker holds all of it"] = right / size
    return number(answer, right, "MiB", "4 numbers for each parameter x 4 bytes / 2^20, on every worker", mistakes,
                  tolerance=0.01)


def _held(answer, runs: list[Record]) -> str:
    size = runs[0]["layout"]["size"]
    model = {"data parallelism does not divide the model: each worker holds all of it": 1 / size}
    batch = {"each worker takes its own part of the step's images": 1}
    return parts(answer, {
        "parameters": lambda value: number(value, 1, "share", "all parameters, on every worker", model),
        "images": lambda value: number(value, 1 / size, "share", "batch_size / global batch", batch),
    })


def _slope(answer, runs: list[Record]) -> str:
    rows = _tried(runs[0])
    images, peaks = (np.array([float(row[name]) for row in rows]) for name in ("batch_size", "peak_mb"))
    each, start = np.polyfit(images, peaks, 1)
    most = images.argmax()
    return number(answer, each, "MiB", "the slope of a line through peak_mb over batch_size, of the trials that fit", {
        "that divides the whole peak by the images; TensorFlow and the weights are in it at any batch":
            peaks[most] / images[most],
        "that is where the line starts: what is there without any image": start,
        "that is upside down: images per MiB": 1 / each,
    }, tolerance=0.03)


QUESTIONS = {
    "q1": Question("How much memory do weights, gradients and Adam's two moments of this run's network take on each "
                   "worker, in float32?", "a number, in MiB (2^20 bytes)", _any, _fixed),
    "q2": Question("Which share of the network's parameters, and which share of the images of a step, does each worker "
                   "of this run hold?", '`{"parameters": ..., "images": ...}`, shares from 0 to 1', _several, _held),
    "q3": Question("How much memory does one more image cost this network? Put a straight line through those trials of "
                   "this search that fit (table `trials`).", "a number, in MiB per image", _search, _slope),
}
