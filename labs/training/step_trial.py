"""A trial of a train step that a student wrote: each worker takes a few steps with it and reports its weights.

    mpirun -np 2 python -m labs.training.step_trial CHILD FOLDER NAME

CHILD is the file that defines the function NAME of a cell. The cell is `step.py` in FOLDER. A worker writes `RANK.json`
there before its first step, and again at its end, with its weights or with an error.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
import traceback
from pathlib import Path

import numpy as np
import tensorflow as tf

import horovod_keras3 as hvd
from labs.run import atomic
from labs.run.text import printable

STEPS, BATCH_SIZE, FEATURES, CLASSES = 3, 8, 4, 3


def main(child: str, folder: Path, name: str) -> int:
    """Take the steps on this worker, write its report, and return the exit code."""
    # Horovod: find the other worker.
    hvd.init()
    rank, source, its = hvd.rank(), folder / "step.py", runpy.run_path(child)
    report, (images, labels) = folder / f"{rank}.json", batches(hvd.size())
    model, optimizer = network(), adam()
    initial, step = weights(model), None
    try:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):  # It may print without end.
            step = its["define"](source.read_text(encoding="utf-8"), name, str(source), tf=tf)
            atomic.write_json(report, {"started": True})
            for number in range(STEPS):
                step(model, images[number, rank], labels[number, rank], optimizer, hvd)
    except BaseException as error:  # A student's function may raise anything, such as SystemExit.
        plain = its["described"](error)
        where = _where(error, str(source))
        text = f"{type(error).__name__}{where}: {printable(' '.join(plain['text'].split())[:400])}"
        atomic.write_json(report, {"error": text, "needs": "" if step else plain["needs"]})
        return 1
    atomic.write_json(report, {"steps": STEPS, "initial": initial, "final": weights(model),
                               "alone": one_worker(images, labels)})
    return 0


def batches(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return images [STEPS, size, BATCH_SIZE, FEATURES] and labels [STEPS, size, BATCH_SIZE], equal on all workers."""
    rng = np.random.default_rng(1)
    images = rng.normal(size=(STEPS, size, BATCH_SIZE, FEATURES)).astype("float32")
    return images, rng.integers(CLASSES, size=images.shape[:3])


def network() -> tf.keras.Model:
    """Return a small network, with the same weights at each call."""
    tf.keras.utils.set_random_seed(1)
    layers = tf.keras.layers
    return tf.keras.Sequential([layers.Input((FEATURES,)), layers.Dense(8, activation="tanh"),
                                layers.Dense(CLASSES, activation="softmax")])


def adam() -> tf.keras.optimizers.Optimizer:
    """Return Adam, with which averaging weights instead of gradients gives another result; SGD would not tell.

    The large epsilon keeps it from enlarging the rounding errors of small gradients.
    """
    return tf.keras.optimizers.Adam(0.05, epsilon=0.01)


def one_worker(images: np.ndarray, labels: np.ndarray) -> list[float]:
    """Return the weights of one worker that takes the steps on the batches of all."""
    model = network()
    model.compile(adam(), "sparse_categorical_crossentropy")
    for number in range(STEPS):
        model.train_on_batch(images[number].reshape(-1, FEATURES), labels[number].ravel())
    return weights(model)


def weights(model: tf.keras.Model) -> list[float]:
    """Return all weights of a model as one list."""
    return np.concatenate([weight.ravel() for weight in model.get_weights()]).tolist()


def _where(error: BaseException, source: str) -> str:
    """Return the line of the cell that raised an error, as the middle of a sentence."""
    lines = [frame.line for frame in traceback.extract_tb(error.__traceback__) if frame.filename == source]
    return f" in `{lines[-1]}`" if lines else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
