"""Code of lab 3: the scaling rules and the warmup."""

from __future__ import annotations

import math

from labs.course.exercises.tasks.functions import RIGHT, Call, StudentFunction, bug, close, code, number


def scaled_lr(base_lr, batch_size, size, base_batch_size, scaling):
    """Return the learning rate after the warmup.

    Args:
        base_lr: The learning rate that is right for `base_batch_size` images
            per step.
        batch_size: Images per worker and step.
        size: Number of workers.
        base_batch_size: Images per step, of all workers, that `base_lr` is
            for.
        scaling: "none": base_lr; "linear": base_lr times k; "sqrt": base_lr
            times the square root of k. k is the global batch size divided by
            base_batch_size.

    Raises:
        ValueError: Any other rule.
    """
    ...  # YOUR CODE


SETTINGS = ((32, 1, 32), (16, 2, 32), (8, 4, 32), (32, 2, 32), (32, 4, 32), (64, 8, 32), (16, 1, 32))
"""batch_size, size, base_batch_size: first three with the same global batch."""


def _grade_scaling(run: StudentFunction) -> str:
    for batch_size, size, base_batch_size in SETTINGS:
        for scaling in ("none", "linear", "sqrt"):
            call, value = _number(run(0.1, batch_size, size, base_batch_size, scaling))
            if batch_size * size == base_batch_size:
                call.expect(close(value, 0.1), "a step has exactly the images that base_lr is for, so nothing is to be "
                                               "scaled, whatever the number of workers")
            elif scaling == "none":
                call.expect(close(value, 0.1), "the rule \"none\" scales nothing")
            power = {"none": 0.0, "linear": 1.0, "sqrt": 0.5}[scaling]
            k = batch_size * size / base_batch_size
            call.expect(close(value, 0.1 * k**power),
                        f"not the {scaling} rule: how many times as many images as base_lr is for does a step have?")
    run.expect_value_error(0.1, 32, 2, 32, "cubic", because="there is no such rule")
    return "the three rules, which depend on the global batch and not on the number of workers; others are refused"


def warmup(step, steps_per_epoch, base_lr, size, warmup_epochs):
    """Return the learning rate of a step: the linear rule, a gradual warmup.

    Step 0 has `base_lr`. From there the learning rate rises in a straight
    line, a little in every step, and reaches `base_lr * size` when
    `warmup_epochs` are over. Then it stays. With `warmup_epochs` 0 it starts
    there.

    Args:
        step: Number of the step, from 0, counted over all epochs.
        steps_per_epoch: Steps per epoch.
        base_lr: Learning rate of one worker.
        size: Number of workers.
        warmup_epochs: Epochs of the warmup; may be a fraction.
    """
    ...  # YOUR CODE


CLIMBS = ((2, 0.1, 2, 1), (4, 0.1, 4, 1), (3, 0.01, 8, 2), (4, 0.1, 1, 1), (4, 0.1, 2, 0), (4, 0.1, 3, 0.5))
"""steps_per_epoch, base_lr, size, warmup_epochs."""


def _grade_warmup(run: StudentFunction) -> str:
    for steps, base_lr, size, epochs in CLIMBS:
        end = steps * epochs
        before = math.nan
        for step in range(int(end) + 3):
            call, value = _number(run(step, steps, base_lr, size, epochs))
            if step >= end:
                call.expect(close(value, base_lr * size), "the warmup is over: from here on the learning rate is that "
                                                          "of all workers, and stays")
            elif step == 0:
                call.expect(close(value, base_lr), "the first step has the learning rate of one worker")
            else:
                call.expect(size == 1 or value != before, "the step before has the same: the learning rate rises in "
                                                          "every step of the warmup, not once per epoch")
                call.expect(close(value, base_lr + (size - 1) * base_lr * step / end),
                            "not on the straight line from the first step to the end of the warmup")
            before = value
    return ("it begins at base_lr, rises in a straight line to base_lr * size, and stays; also for one worker, half an "
            "epoch and none")


def _number(call: Call) -> tuple[Call, float]:
    """Return a call and its value, a number."""
    value = number(call.value)
    call.expect(value is not None, "a learning rate is a number")
    return call, value or 0.0


TASKS = {
    "scaled_lr": code("Write the function that scales the learning rate by one of three rules.", scaled_lr,
                      _grade_scaling),
    "warmup": code("Write the learning rate of each step of a gradual warmup.", warmup, _grade_warmup),
    "bug": bug("lab03", how="It should give the same loss with any number of workers: compare it with "
                     "`labs launch 1 debugging/lab03.py`.", symptoms={
        "the workers end with different weights": "the script broadcasts the weights and averages the gradients",
        "the loss explodes on two workers": RIGHT,
        "some images are never seen": "every image is in the share of one worker, in every epoch",
        "it never ends": "all workers call the same collectives in the same order",
    }, lines={
        22: "each worker takes every size-th image: together they take all of them",
        23: "the script is to have one global batch on any number of workers, and that is what this line does",
        24: RIGHT,
        26: "the optimizer averages the gradients, as it should: a mean does not grow with the number of workers",
        28: "all workers begin at the weights of rank 0, as they should",
    }, reason="the linear rule is for a global batch that grows with the workers; here it is held, so a step has as "
              "many images as before, and needs the same learning rate"),
}
