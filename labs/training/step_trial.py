"""A trial of a train step that a student wrote: workers take a few steps with it and compare their weights.

    labs launch 2 step_trial.py CHILD CELL

CHILD defines the function of the cell in the file CELL. An error ends the workers, and says what is wrong.
"""

import contextlib
import os
import runpy
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

import horovod_keras3 as hvd

STEPS, BATCH_SIZE, FEATURES, CLASSES = 3, 8, 4, 3
EQUAL, SAME_AS_ONE = 1e-6, 1e-5
"""How far the weights of the workers may be apart, and theirs from those of one worker on all batches."""


def main(child: str, cell: str) -> None:
    """Take the steps on this worker; AssertionError says what is wrong with its weights."""
    # Horovod: find the other workers.
    hvd.init()
    step = runpy.run_path(child)["define"](Path(cell).read_text(encoding="utf-8"), "step", tf=tf)
    rng = np.random.default_rng(1)
    images = rng.normal(size=(STEPS, hvd.size(), BATCH_SIZE, FEATURES)).astype("float32")
    labels = rng.integers(CLASSES, size=images.shape[:3])
    model, alone = build_network(), build_network()
    start = model.get_weights()[0]
    for x, y in zip(images, labels, strict=True):
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):  # It may print without end.
            step(model, x[hvd.rank()], y[hvd.rank()], model.optimizer, hvd)
        alone.train_on_batch(x.reshape(-1, FEATURES), y.ravel())
    mine, right = (np.concatenate([weight.ravel() for weight in each.get_weights()]) for each in (model, alone))
    # Horovod: compare the weights of all workers.
    apart, off = np.ptp(hvd.allgather(mine[np.newaxis]), axis=0).max(), abs(mine - right).max()
    for holds, broken in (
            (np.isfinite(apart), "a weight is not finite"),
            (not np.array_equal(model.get_weights()[0], start), "the weights are still those of the start"),
            (apart <= EQUAL, f"the workers hold different weights: the largest difference is {apart:.2g}. Did all "
                             "apply the same gradients?"),
            (off <= SAME_AS_ONE, "the workers agree, but one worker that trains on all batches ends at other weights: "
                                 f"the largest difference is {off:.2g}. Is what they apply the mean gradient of all "
                                 "images?")):
        if not holds:
            raise AssertionError(f"after {STEPS} steps {broken}")


def build_network() -> tf.keras.Model:
    """Return a small network, with the same weights at each call, and Adam."""
    tf.keras.utils.set_random_seed(1)
    model = tf.keras.Sequential([tf.keras.layers.Input((FEATURES,)), tf.keras.layers.Dense(8, activation="tanh"),
                                 tf.keras.layers.Dense(CLASSES, activation="softmax")])
    # SGD would not tell weights that are averaged from gradients. A small epsilon would enlarge rounding errors.
    model.compile(tf.keras.optimizers.Adam(0.05, epsilon=0.01), "sparse_categorical_crossentropy")
    return model


if __name__ == "__main__":
    main(*sys.argv[1:])
