"""Seconds of a step, images per second of the input pipeline and of gradient steps, bytes of the gradients."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf

    from labs.datasets.splits import Subset


def seconds_per_step(history: Sequence[Mapping[str, float]]) -> float | None:
    """Return the mean seconds of a training step, without the first epoch; None if there is no other."""
    # Not `batch_size / images_per_sec`: the last batch is padded with images that cost as much as others.
    later = history[1:]
    steps = sum(row["steps"] for row in later)
    return sum(row["train_seconds"] for row in later) / steps if steps else None


def input_rate(subset: Subset, batch_size: int, seconds: float = 1.0) -> float:
    """Return the images per second that the input pipeline delivers to one worker: a bound of the throughput."""
    from labs.datasets.pipeline import train_batches
    from labs.datasets.sharding import shard

    def endless() -> Iterator[int]:
        for epoch in itertools.count():
            order = shard(subset.positions, batch_size, 0, 1, epoch, seed=0)
            yield from (len(x) for x, _, _ in train_batches(subset.images, subset.labels, order, epoch=epoch, seed=0))

    batches = endless()
    next(batches)  # It waits for threads to start.
    images, began, taken = 0, time.perf_counter(), 0.0
    while taken < seconds:
        images += next(batches)
        taken = time.perf_counter() - began
    return images / taken


def gradient_bytes(model: tf.keras.Model, fp16_allreduce: bool = False) -> int:
    """Return the bytes of one step's gradients as they are sent; `hvd.Compression.fp16` casts floats to 2 bytes."""
    from labs.training.keras_internals import tf_variable

    weights = [tf_variable(weight) for weight in model.trainable_weights]
    return sum(weight.shape.num_elements() * (2 if fp16_allreduce and weight.dtype.is_floating else weight.dtype.size)
               for weight in weights)


class GradientStep:
    """Timed forward and backward passes of a regression model on one batch of random images."""

    def __init__(self, model: tf.keras.Model, batch_size: int, exchange: Callable | None = None):
        """Trace the step of a model from uint8 images to one number; `exchange` may be `hvd.grouped_allreduce`."""
        import numpy as np
        import tensorflow as tf

        self.batch_size = batch_size
        shape = (batch_size, *model.input_shape[1:])
        images = tf.constant(np.random.default_rng(1).integers(0, 256, shape, np.uint8))
        ages = tf.linspace([15.0], [85.0], batch_size)

        @tf.function
        def step():
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(images, training=True) - ages) ** 2)
            gradients = tape.gradient(loss, model.trainable_variables)
            return exchange(gradients) if exchange else gradients

        self._step = step
        step()

    def images_per_sec(self, steps: int = 60) -> float:
        """Return the images per second of this process over some steps."""
        began = time.perf_counter()
        for _ in range(steps):
            gradients = self._step()
        gradients[-1].numpy()  # Waits until it is computed.
        return steps * self.batch_size / (time.perf_counter() - began)
