"""Exercises of lab 1: steps, duration of a full run, throughput by batch size, and the cost of a step."""

import math
from numbers import Integral

import numpy as np

from labs.exercises.code_tasks import AVERAGED, SHARDED, StudentFunction, bug, close, code
from labs.exercises.grading import Question, grade_choice, grade_number, ratio
from labs.exercises.selecting import Record, images_per_sec, missing_run, newest
from labs.measure.throughput import seconds_per_step

EPOCHS, IMAGES = 40, 60_000
"""The full run of report M."""
RAISED = "section 'How to raise it, and whether to' of notebooks/lab01_baseline.ipynb"
COMMAND = "`labs run lab01_baseline --workers 1`"
NEWEST = newest("a run of two epochs or more", COMMAND, images_per_sec)


def _by_batch(records: list[Record]) -> list[Record]:
    """Return the newest run of each batch size, sorted by batch size; all on the newest data that has two of them.

    Runs on another number of images are not mixed in: their last batches may be padded, which lowers images_per_sec.
    """
    groups: dict[tuple, dict[int, Record]] = {}
    for run in filter(images_per_sec, records):  # Oldest first.
        data = run["config"]["data"], run["config"].get("images", 0)
        by_batch = groups.pop(data, {})
        groups[data] = by_batch | {run["config"]["batch_size"]: run}
    several = [group for group in groups.values() if len(group) > 1]
    if not several:
        raise missing_run("two batch sizes", RAISED)
    return [several[-1][size] for size in sorted(several[-1])]


def _steps(answer, run: Record) -> str:
    images, size = run["history"][0]["images"], run["config"]["batch_size"]
    per_epoch = math.ceil(images / size)
    return grade_number(answer, EPOCHS * per_epoch, "steps", "epochs x (training images / batch size, rounded up)", {
        "that divides the images of all epochs by the batch size; but each epoch ends with its own smaller batch":
            EPOCHS * images / size,
        "that leaves out the last, smaller batch of each epoch": EPOCHS * (images // size),
        "that is the number of steps that the run itself took": sum(row["steps"] for row in run["history"]),
        "that is the number of steps of one epoch": per_epoch}, rel_tol=1e-6)


def _minutes(answer, run: Record) -> str:
    history, steps = run["history"], EPOCHS * math.ceil(IMAGES / run["config"]["batch_size"])
    right = steps * (seconds_per_step(history) or math.nan) / 60
    traced = ratio(*(sum(row[name] for row in history) for name in ("train_seconds", "steps")))
    return grade_number(answer, right, "minutes", f"{steps} steps x seconds of a step / 60", {
        "that is the time of one epoch": right / EPOCHS,
        "that includes the first epoch, in which the model is traced": steps * traced / 60,
        "that goes by images_per_sec, which does not count the padding of this run's last steps":
            EPOCHS * IMAGES / images_per_sec(run) / 60})


def _fastest(answer, *runs: Record) -> str:
    throughputs = {run["config"]["batch_size"]: images_per_sec(run) for run in runs}
    busy = {run["config"]["batch_size"]: run["metrics"].get("cpu_percent", 0) for run in runs}
    right = {size for size, value in throughputs.items() if value > 0.97 * max(throughputs.values())}
    others = dict.fromkeys(throughputs, "another batch size has more images_per_sec")
    others[min(throughputs)] = "its steps are the shortest, but they train the fewest images: compare images_per_sec"
    others[max(throughputs)] = "the largest batch is not always the fastest: compare images_per_sec"
    busiest = max(busy, key=lambda size: busy[size])
    others[busiest] = "it keeps the machine busiest, but busy is not fast: compare images_per_sec"
    return grade_choice(answer, right, others, "the aim is images per second, not a busy machine")


QUESTIONS = {
    "q1": Question(NEWEST, _steps),
    "q2": Question(NEWEST, _minutes, timed=True),
    "q3": Question(_by_batch, _fastest, timed=True),
}


def _grade_steps(run: StudentFunction) -> str:
    for images, batch_size in ((1, 1), (1, 8), (4, 2), (5, 2), (7, 8), (9, 8), (1438, 128), (60_000, 128),
                               (run.whole(1000, 5000), run.whole(9, 200))):
        call = run(images, batch_size)
        steps = call.value
        call.expect(isinstance(steps, Integral) and not isinstance(steps, bool), "a number of steps is an int")
        call.expect(steps * batch_size >= images, "some images are in no step; the last batch may be smaller")
        call.expect((steps - 1) * batch_size < images, "the last step has no images")
    return "an int; no image is left out, and no step is empty"


def _grade_cost(run: StudentFunction) -> str:
    measured = (
        ([1, 2], [3.0, 5.0]), ([2, 1], [5.0, 3.0]), ([8, 8, 32], [7.0, 7.0, 13.0]),
        ([8, 32, 128], [8.0, 12.0, 40.0]), ([8, 32, 128, 1024], [7.7, 11.7, 40.7, 234.9]),
    )
    drawn = [8, 32, 128, 512], [run.real(0.9, 1.1) * (6 + 0.25 * size) for size in (8, 32, 128, 512)]
    for batch_sizes, milliseconds in (*measured, drawn):
        b, t = np.array(batch_sizes), np.array(milliseconds)
        call = run(b, t)
        a, c = call.numbers(call.value, 2, "the result is two numbers, (a, c)")
        best_c, best_a = np.polyfit(b, t, 1, w=1 / t)
        call.expect(not close([c, a], [best_a, best_c]) or close(best_a, best_c), "a and c are in the wrong order")
        call.expect(_misfit(a, c, b, t) <= 1.005 * _misfit(best_a, best_c, b, t) + 1e-12,
                    "another line is nearer to the points, relative to their times: its sum of "
                    "((t - a - c b) / t)**2 is smaller")
    for batch_sizes, milliseconds in (([32], [9.0]), ([32, 32], [9.0, 9.5])):
        run.expect_value_error(np.array(batch_sizes), np.array(milliseconds),
                               because="any number of lines go through measurements of a single batch size")
    return "the line with the smallest relative errors; a single batch size is refused"


def _misfit(a: float, c: float, b: np.ndarray, t: np.ndarray) -> float:
    return float((((t - a - c * b) / t) ** 2).sum())


TASKS = {
    "steps_per_epoch": code("images, batch_size", _grade_steps),
    "fit_cost": code("batch_sizes, milliseconds", _grade_cost),
    "bug": bug("the log counts every epoch twice", 36, (
        "every worker runs the whole script, so what must happen once is for rank 0 alone"), {}, {
        24: SHARDED, 27: AVERAGED, 31: "it runs on rank 0 alone, before the first epoch",
        39: "it only waits until all workers have written their rows"}),
}
