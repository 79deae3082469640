"""Code of lab 1: the number of steps, and the cost of a step."""

from __future__ import annotations

from numbers import Integral

import numpy as np

from labs.course.exercises.tasks.functions import RIGHT, StudentFunction, bug, close, code, numbers


def steps_per_epoch(images, batch_size):
    """Return how many steps one worker takes to train on each image once.

    The result is an int. The last batch of an epoch may be smaller than the
    others.

    Args:
        images: Number of training images.
        batch_size: Images per step.
    """
    ...  # YOUR CODE


def _grade_steps(run: StudentFunction) -> str:
    for images, batch_size in ((1, 1), (1, 8), (4, 2), (5, 2), (7, 8), (9, 8), (1438, 128), (60_000, 128)):
        call = run(images, batch_size)
        steps = call.value
        call.expect(isinstance(steps, Integral) and not isinstance(steps, bool), "a number of steps is an int")
        call.expect(steps * batch_size >= images, "some images are in no step; the last batch may be smaller")
        call.expect((steps - 1) * batch_size < images, "the last step has no images")
    return "an int; no image is left out, and no step is empty"


def fit_cost(batch_sizes, milliseconds):
    """Return `(a, c)` of the line a + c b that fits measured times of a step.

    `a` is the fixed time of a step, `c` the time of an image, b the batch
    size. The error of a measured time t grows with t, so the line minimizes
    the sum of ((t - a - c b) / t)**2.

    Args:
        batch_sizes: Images per step of each measurement, an array of length n.
        milliseconds: Measured time of a step, an array of length n.

    Raises:
        ValueError: All measurements have the same batch size.
    """
    ...  # YOUR CODE


MEASURED = (
    ([1, 2], [3.0, 5.0]), ([2, 1], [5.0, 3.0]), ([8, 8, 32], [7.0, 7.0, 13.0]),
    ([8, 32, 128], [8.0, 12.0, 40.0]), ([8, 32, 128, 1024], [7.7, 11.7, 40.7, 234.9]),
)
"""Batch sizes and milliseconds: first points of a line, then points with errors."""


def _grade_cost(run: StudentFunction) -> str:
    for batch_sizes, milliseconds in MEASURED:
        b, t = np.array(batch_sizes), np.array(milliseconds)
        call = run(b, t)
        pair = numbers(call.value, 2)
        call.expect(pair, "the result is two numbers, (a, c)")
        a, c = pair or (0.0, 0.0)
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
    "steps_per_epoch": code("Write the function that counts the steps of an epoch.", steps_per_epoch, _grade_steps),
    "fit_cost": code("Write the function that fits the fixed time of a step and the time of an image to measured "
                     "steps.", fit_cost, _grade_cost),
    "bug": bug("lab01", before="Do this one after lab 2; it explains how several workers train together. Both "
                     "workers run the script; only worker 0 runs the code under `if hvd.rank() == 0:`.", symptoms={
        "the workers end with different weights": "the script broadcasts the weights and averages the gradients",
        "the log counts every epoch twice": RIGHT,
        "some images are never seen": "every image is in the share of one worker, in every epoch",
        "it never ends": "all workers call the same collectives in the same order",
    }, lines={
        24: "each worker takes every size-th image: together they take all of them",
        27: "the optimizer averages the gradients, as it should",
        31: "it runs on rank 0 alone, before the first epoch",
        36: RIGHT,
        39: "it only waits until all workers have written their rows",
    }, reason="every worker runs the whole script, so what must happen once is for rank 0 alone"),
}
