"""A trial of a train step that a student wrote: each worker takes a few steps with it and reports its weights.

    mpirun -np 2 python -P step_trial.py CHILD FOLDER

CHILD is the file that defines the function of a cell, here of `step.py` in FOLDER. There a worker writes `RANK.json` at
its end: its weights, or an error. Like CHILD, the program imports nothing of the kit.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import horovod_keras3 as hvd

STEPS, BATCH_SIZE, FEATURES, CLASSES = 3, 8, 4, 3


def main(child: str, folder: Path) -> int:
    """Take the steps on this worker, write its report, and return the exit code."""
    # Horovod: find the other worker.
    hvd.init()
    its, cell = runpy.run_path(child), (folder / "step.py").read_text(encoding="utf-8")
    try:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):  # It may print without end.
            report = take_steps(its["define"](cell, "step", tf=tf))
    except BaseException as error:  # A student's function may raise anything, such as SystemExit.
        described = its["describe_error"](error)
        report = described | {"error": f"{described['error']}{_find_line(error, cell)}: {described['text']}"}
    (folder / f"{hvd.rank()}.json").write_text(json.dumps(report))
    return int("error" in report)


def take_steps(step: Any) -> dict[str, Any]:
    """Return this worker's weights before and after the steps, and those of one worker with the batches of all."""
    rng = np.random.default_rng(1)  # Equal on all workers.
    images = rng.normal(size=(STEPS, hvd.size(), BATCH_SIZE, FEATURES)).astype("float32")
    labels = rng.integers(CLASSES, size=images.shape[:3])
    (model, optimizer), (alone, its_optimizer) = new_network(), new_network()
    initial = flatten(model)
    for number in range(STEPS):
        step(model, images[number, hvd.rank()], labels[number, hvd.rank()], optimizer, hvd)
    alone.compile(its_optimizer, "sparse_categorical_crossentropy")
    for number in range(STEPS):
        alone.train_on_batch(images[number].reshape(-1, FEATURES), labels[number].ravel())
    return {"steps": STEPS, "initial": initial, "final": flatten(model), "alone": flatten(alone)}


def new_network() -> tuple[tf.keras.Model, tf.keras.optimizers.Optimizer]:
    """Return a small network, with the same weights at each call, and its optimizer.

    With Adam, averaging weights instead of gradients gives another result; SGD would not tell. The large epsilon keeps
    it from enlarging the rounding errors of small gradients.
    """
    tf.keras.utils.set_random_seed(1)
    layers = tf.keras.layers
    return (tf.keras.Sequential([layers.Input((FEATURES,)), layers.Dense(8, activation="tanh"),
                                 layers.Dense(CLASSES, activation="softmax")]),
            tf.keras.optimizers.Adam(0.05, epsilon=0.01))


def flatten(model: tf.keras.Model) -> list[float]:
    """Return all weights of a model as one list."""
    return np.concatenate([weight.ravel() for weight in model.get_weights()]).tolist()


def _find_line(error: BaseException, cell: str) -> str:
    """Return the line of the cell that raised an error, as the middle of a sentence."""
    line, trace = 0, error.__traceback__
    while trace:
        line = trace.tb_lineno if trace.tb_frame.f_code.co_filename == "step.py" else line
        trace = trace.tb_next
    return f" in `{cell.splitlines()[line - 1].strip()}`" if line else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
