"""Batch norm's statistics, recomputed for the final weights."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from labs.datasets.splits import Subset
from labs.run.fields import BatchSize, Seed
from labs.run.options import Options
from labs.training import workers
from labs.training.batch_norm import recompute_statistics
from labs.training.loop import evaluate, fit


@dataclasses.dataclass(frozen=True)
class Config:
    epochs: int = 2
    batch_size: BatchSize = 16
    seed: Seed = 1


def test_statistics_are_plain_means_over_the_training_images(tmp_path):
    """After training, the running mean lags behind; recomputed, it is the mean of what the final weights give."""
    layers = tf.keras.layers
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (64, 6, 6, 3), dtype=np.uint8)
    train = Subset(images, images.mean((1, 2, 3)).astype(np.int64) % 2, np.arange(64))
    model = tf.keras.Sequential([
        layers.Input((6, 6, 3), dtype="uint8"), layers.Rescaling(1 / 255), layers.Conv2D(4, 3),
        layers.BatchNormalization(momentum=0.9), layers.Flatten(), layers.Dense(2, activation="softmax"),
    ])
    with workers.start(Config(), Options(results=tmp_path)) as job:
        fit(job, model, tf.keras.optimizers.SGD(0.1), train, batch_size=16, epochs=2)
        before = evaluate(job, model, train, 16)
        trained = [weight.numpy() for weight in model.trainable_weights]
        right = model.layers[1](images / 255.0).numpy()
        lagging = model.layers[2].moving_mean.numpy()
        recompute_statistics(job, model, train, 16)
        after = evaluate(job, model, train, 16)
    norm = model.layers[2]
    assert norm.momentum == 0.9
    assert abs(lagging - right.mean((0, 1, 2))).max() > 0.01, "nothing to repair"
    np.testing.assert_allclose(norm.moving_mean, right.mean((0, 1, 2)), atol=1e-5)
    batches = np.mean(norm.moving_variance / right.var((0, 1, 2)))
    assert 0.9 < batches < 1.05, "the mean of the batches' variances"
    for weight, value in zip(model.trainable_weights, trained, strict=True):
        np.testing.assert_array_equal(weight, value)
    assert before["loss"] != after["loss"]
