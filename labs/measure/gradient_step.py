"""Timed gradient steps: forward and backward pass on random images, with or without an exchange of the gradients."""

import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf


class GradientStep:
    """The gradients of a regression model on one batch of random images; the weights are not updated."""

    def __init__(self, model: tf.keras.Model, batch_size: int, exchange: Callable | None = None):
        """Trace the step of a model from uint8 images to one number; `exchange` may be `hvd.grouped_allreduce`."""
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
