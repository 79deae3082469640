"""A trial of a train step that a student wrote: each worker takes a few steps with it and reports its weights.

    mpirun -np 2 python -m labs.training.step_trial STEP.py NAME FOLDER

A worker writes two files into FOLDER: `started-RANK.json` before its first step, and `RANK.json` at its end, with its
weights or with the error that the step raised.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf

import horovod_keras3 as hvd
from labs.run import atomic
from labs.run.text import printable

STEPS, BATCH_SIZE, FEATURES, CLASSES = 3, 8, 4, 3


def main(source: str, name: str, folder: str) -> int:
    """Take the steps on this worker, write its report, and return the exit code."""
    # Horovod: find the other worker.
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    images, labels = batches(size)
    model, optimizer = network(), adam()
    initial = weights(model)
    step = load(source, name)
    atomic.write_json(Path(folder) / f"started-{rank}.json", {})
    try:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):  # It may print without end.
            for number in range(STEPS):
                step(model, images[number, rank], labels[number, rank], optimizer, hvd)
    except BaseException as error:  # A student's function may raise anything, such as SystemExit.
        atomic.write_json(Path(folder) / f"{rank}.json", {"error": described(error, source)})
        return 1
    atomic.write_json(Path(folder) / f"{rank}.json", {
        "steps": STEPS, "initial": initial, "final": weights(model), "alone": one_worker(images, labels)})
    return 0


def load(source: str, name: str) -> Callable:
    """Return a function of a file."""
    return runpy.run_path(source)[name]


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
    model, optimizer = network(), adam()
    for number in range(STEPS):
        with tf.GradientTape() as tape:
            outputs = model(images[number].reshape(-1, FEATURES))
            loss = tf.reduce_mean(tf.keras.losses.sparse_categorical_crossentropy(labels[number].ravel(), outputs))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return weights(model)


def weights(model: tf.keras.Model) -> list[float]:
    """Return all weights of a model as one list."""
    return np.concatenate([weight.ravel() for weight in model.get_weights()]).tolist()


def described(error: BaseException, source: str) -> str:
    """Return an error with the line of the source that raised it, as one line."""
    lines = [frame.line for frame in traceback.extract_tb(error.__traceback__) if frame.filename == source]
    where = f" in `{lines[-1]}`" if lines else ""
    text = ""
    with contextlib.suppress(Exception):  # Its text may raise.
        text = printable(" ".join(str(error).split())[:400])
    return f"{type(error).__name__}{where}: {text}"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
