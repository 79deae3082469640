"""A trial of a train step that a student wrote: each worker takes a few steps with it and reports its weights.

    mpirun -np 2 python -P step_trial.py CHILD FOLDER

CHILD defines the function of the cell in FOLDER/step.py. Each worker writes FOLDER/RANK.json: its weights, or an error.
"""

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
    its = runpy.run_path(child)
    try:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):  # It may print without end.
            report = take_steps(its["define"]((folder / "step.py").read_text(encoding="utf-8"), "step", tf=tf))
    except BaseException as error:  # A student's function may raise anything, such as SystemExit.
        report = its["describe_error"](error)
    (folder / f"{hvd.rank()}.json").write_text(json.dumps(report))
    return int("error" in report)


def take_steps(step: Any) -> dict[str, Any]:
    """Return this worker's weights at the start and the end, and those of one worker on the batches of all."""
    rng = np.random.default_rng(1)
    images = rng.normal(size=(STEPS, hvd.size(), BATCH_SIZE, FEATURES)).astype("float32")
    labels = rng.integers(CLASSES, size=images.shape[:3])
    (model, optimizer), (alone, its_optimizer) = network(), network()
    alone.compile(its_optimizer, "sparse_categorical_crossentropy")
    start = weights(model)
    for x, y in zip(images, labels, strict=True):
        step(model, x[hvd.rank()], y[hvd.rank()], optimizer, hvd)
        alone.train_on_batch(x.reshape(-1, FEATURES), y.ravel())
    return {"start": start, "end": weights(model), "alone": weights(alone)}


def network() -> tuple[tf.keras.Model, tf.keras.optimizers.Optimizer]:
    """Return a small network, with the same weights at each call, and Adam."""
    tf.keras.utils.set_random_seed(1)
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Input((FEATURES,)), layers.Dense(8, activation="tanh"),
                                 layers.Dense(CLASSES, activation="softmax")])
    # SGD would not tell weights that are averaged from gradients. A small epsilon would enlarge rounding errors.
    return model, tf.keras.optimizers.Adam(0.05, epsilon=0.01)


def weights(model: tf.keras.Model) -> list[float]:
    """Return all weights of a model as one list."""
    return np.concatenate([weight.ravel() for weight in model.get_weights()]).tolist()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
