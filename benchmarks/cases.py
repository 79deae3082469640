"""The measured cases: three networks on random images at two batch sizes, and photos at three sizes."""

from __future__ import annotations

import json
import os

import numpy as np

STEPS = {"mlp": 300, "mnist_cnn": 20, "wide_cnn": 12}
"""Steps per epoch by network, chosen so that an epoch takes 0.5 to 2 s."""
if os.environ.get("BENCH_QUICK"):  # To see that all contenders run; the figures mean nothing.
    STEPS = dict.fromkeys(STEPS, 2)
LONGER = 3
"""Factor on STEPS where whole epochs are timed, with their end: 1 to 5 s (epochs of MNIST itself take 40 s)."""
BATCH_SIZES = (32, 128)
"""Images per worker and step."""
EPOCHS = 3
"""The first is not timed."""
LEARNING_RATE = 0.01
MOMENTUM = 0.9
PHOTO_SIDES = (64, 128, 224)
"""Side in pixels to which photos are resized."""
LATER_EPOCHS = 1
"""Epochs over the photos after the first one."""


def images(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return random images, uint8 [count, 28, 28, 1], and their classes, int64 [count]."""
    random = np.random.default_rng(0)
    return random.integers(0, 256, (count, 28, 28, 1), dtype=np.uint8), random.integers(0, 10, count)


def network(name: str):
    """Return an uncompiled Keras model: 101,770, 1,199,882 or 5,923,978 parameters."""
    import tensorflow as tf

    layers = tf.keras.layers
    convolutions = [layers.Conv2D(32, 3, activation="relu"), layers.Conv2D(64, 3, activation="relu"),
                    layers.MaxPooling2D(2)]
    body = {
        "mlp": [layers.Flatten(), layers.Dense(128, activation="relu")],
        "mnist_cnn": [*convolutions, layers.Flatten(), layers.Dense(128, activation="relu")],
        "wide_cnn": [*convolutions, layers.Flatten(), layers.Dense(640, activation="relu")],
    }[name]
    return tf.keras.Sequential([layers.Input((28, 28, 1), dtype="uint8"), layers.Rescaling(1 / 255), *body,
                                layers.Dense(10, activation="softmax")], name=name)


def show(case: str, value: float) -> None:
    """Print a figure in the format that `benchmarks.programs` reads."""
    print(json.dumps({"case": case, "value": value}), flush=True)
