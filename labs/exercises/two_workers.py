"""A train step on two real workers: writes its cell to a file, runs it under mpirun, and compares the weights."""

from __future__ import annotations

import ast
import json
import tempfile
from pathlib import Path

import numpy as np

from labs.exercises import child
from labs.exercises.grading import NoAnswerError, cut, require
from labs.launch import mpirun
from labs.launch.supervisor import Outcome, complete
from labs.run import atomic

SECONDS = 60
"""The time limit. Two workers need 10 to 15 s on two idle cores, most of it to import TensorFlow."""
EQUAL, SAME_AS_ONE = 1e-6, 1e-5
"""How far the weights of the two workers may be apart, and theirs from those of one worker on both batches. Rounding
accounts for less than 1e-6."""
ENDED = "Horovod has been shut down"
"""Horovod's message on a worker that waits when another one has ended."""
HANG = "a rank waits in a collective that the other never calls, or calls in another order"


def step(model, images, labels, optimizer, hvd):
    """Train one step: all workers apply the mean of their gradients.

    Each worker computes the gradients on its own batch. The loss is the mean
    over the images of
    `tf.keras.losses.sparse_categorical_crossentropy(labels, model(images))`.
    The cell runs alone on each worker; `np`, `math` and `tf` are there.

    Args:
        model: A Keras model; equal on all workers.
        images: This worker's batch: 8 small test images of 4 numbers each,
            shape [8, 4].
        labels: Their classes, an array of length 8.
        optimizer: A Keras optimizer, which exchanges nothing itself.
        hvd: Horovod, `horovod_keras3`, already initialized.
    """
    ...  # YOUR CODE


def grade_step(cell: str) -> str:
    """Run the train step of a cell on two workers; return what was checked, or raise AssertionError."""
    if any(map(_is_open, ast.parse(cell).body)):
        raise NoAnswerError("no answer yet: `step` does nothing")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        atomic.write_text(folder / "step.py", cell)
        program = ["-m", "labs.training.step_trial", child.__file__, folder, step.__name__]
        outcome = complete([*mpirun.command(2), *mpirun.PYTHON, *program], SECONDS, _environment())
        reports = [json.loads(path.read_text()) if path.exists() else {}
                   for path in (folder / f"{rank}.json" for rank in range(2))]
    expect_run(reports, outcome)
    return expect_weights(*reports)


def _is_open(node: ast.stmt) -> bool:
    """Return whether a statement is `step` with its hole."""
    return isinstance(node, ast.FunctionDef) and node.name == step.__name__ and all(
        isinstance(each, ast.Pass) or (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
        for each in node.body)


def _environment() -> dict[str, str]:
    """Return the environment of the workers: Horovod's defaults, and no GPU."""
    # A lab that ran in this process has left its settings of Horovod, such as the transport.
    env = {name: value for name, value in mpirun.environment(bar=False).items() if not name.startswith("HOROVOD_")}
    return env | {"CUDA_VISIBLE_DEVICES": "-1"}  # NCCL refuses two workers on one GPU.


def expect_run(reports: list[dict], outcome: Outcome) -> None:
    """Raise AssertionError unless both workers took all steps.

    Args:
        reports: Those of the two workers; {} from one that has not begun the first step.
        outcome: How mpirun ended.
    """
    for report in reports:
        if needs := report.get("needs"):
            raise NoAnswerError(needs)
    errors = {rank: report["error"] for rank, report in enumerate(reports) if report.get("error")}
    for rank, error in errors.items():
        require(ENDED in error, f"on rank {rank} of two, the function raised {error}")
    require(all(reports), f"the two workers had not started after {SECONDS} s; is the machine busy? Try again"
                          if outcome.code is None else f"the two workers did not start: mpirun {cut(outcome.cause)}")
    finished = all("final" in report for report in reports)  # Even if mpirun itself has not ended in time.
    require(finished or (outcome.code is not None and not errors), f"the steps do not end: {HANG}")
    require(finished, f"a worker ended in the middle of the steps: mpirun {cut(outcome.cause)}")


def expect_weights(first: dict, second: dict) -> str:
    """Return what was checked about the weights of two workers, or raise AssertionError.

    Args:
        first: Rank 0's report: its weights at the start ("initial"), at the end ("final"), and those of one worker on
            both batches ("alone").
        second: Rank 1's.
    """
    steps, mine, other = first["steps"], np.array(first["final"]), np.array(second["final"])
    require(np.isfinite([mine, other]).all(), f"after {steps} steps a weight is not finite")
    require(not np.array_equal(mine, first["initial"]), f"after {steps} steps the weights are still those of the start")
    apart = abs(mine - other).max()
    require(apart <= EQUAL, f"after {steps} steps the two workers hold different weights: the largest difference is "
                            f"{apart:.2g}. Did both apply the same gradients?")
    apart = abs(mine - np.array(first["alone"])).max()
    require(apart <= SAME_AS_ONE, "the two workers agree, but one worker that trains on both batches ends at other "
                                  f"weights: after {steps} steps the largest difference is {apart:.2g}. Is what they "
                                  "apply the mean gradient of all images?")
    return (f"after {steps} steps on two real workers their weights are equal (within {EQUAL:g}), and equal to those "
            f"of one worker on both batches (within {SAME_AS_ONE:g})")
