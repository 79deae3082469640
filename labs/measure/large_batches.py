"""Many trainings of one small network in one process: lab 3's study of batches and learning rates.

One process with k B images takes the steps of k workers with B each, so the study of 32 workers needs one core. An
epoch runs inside TensorFlow, where a step of 8 images takes about a millisecond.
"""

import time
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from labs.datasets.arrays import Arrays
from labs.datasets.sharding import shard, steps_per_epoch

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-7  # Keras' defaults of Adam.


class Trainer:
    """A network without batch norm or dropout that starts from the same weights in every training."""

    def __init__(self, model: tf.keras.Model, arrays: Arrays, optimizer: str = "sgd", momentum: float = 0.9):
        self.model, self.optimizer, self.momentum = model, optimizer, momentum
        self._start = model.get_weights()
        self._images, self._labels = tf.constant(arrays.train_images), tf.constant(arrays.train_labels)
        self._held_out = tf.constant(arrays.test_images), tf.constant(arrays.test_labels)
        zeros = [np.zeros_like(weight) for weight in self._start]
        self._moments = [[tf.Variable(zero) for zero in zeros] for _ in range(2)]
        relus = [layer.output for layer in model.layers if layer.get_config().get("activation") == "relu"]
        self._layers = tf.keras.Model(model.inputs, [*relus, model.outputs[0]])

    def train(self, batch_size: int, learning_rates: Sequence[float] | np.ndarray, epochs: int, seed: int,
              after: Callable[[int], None]) -> dict[str, float]:
        """Train, and return the results as a row; `dead_first` is the share of dead ReLUs after the first epoch.

        Args:
            batch_size: Images per step, of all workers that this process stands for.
            learning_rates: The learning rate of each step of all epochs.
            after: Called with the number of completed epochs, before the first and after each.
        """
        began, n, row = time.perf_counter(), len(self._labels), dict[str, float]()
        self.model.set_weights(self._start)
        for moment in (*self._moments[0], *self._moments[1]):
            moment.assign(tf.zeros_like(moment))
        after(0)
        steps = steps_per_epoch(n, batch_size, 1)
        for epoch in range(epochs):
            batches = shard(n, batch_size, 0, 1, epoch, seed)
            rates = np.asarray(learning_rates[epoch * steps:(epoch + 1) * steps], np.float32)
            loss, accuracy = self._epoch(batches.rows, batches.weights, rates, tf.constant(float(epoch * steps)))
            row |= {"updates": (epoch + 1) * steps, "loss": float(loss), "accuracy": float(accuracy)}
            if epoch == 0:
                row["dead_first"] = self.evaluate()["dead"]
            after(epoch + 1)
        return row | self.evaluate() | {"seconds": time.perf_counter() - began}

    def evaluate(self) -> dict[str, float]:
        """Return loss and accuracy on the held-out images, and the share of ReLUs that are 0 for all of them."""
        loss, accuracy, dead = self._evaluated()
        return {"val_loss": float(loss), "val_accuracy": float(accuracy), "dead": float(dead)}

    def measure_misses(self, batches: np.ndarray, learning_rate: float, factors: Sequence[int]) -> list[float]:
        """Return how far one large step ends from k small ones, as a share of their distance, for each ascending k.

        Plain SGD from the current weights, which stay as they are: k steps on the first k rows of `batches`, and one
        step on all their images with k times the learning rate.
        """
        begin, done, shares = self.model.get_weights(), 0, list[float]()
        small = begin
        for k in factors:
            self.model.set_weights(small)
            for rows in batches[done:k]:
                self._step(rows, learning_rate)
            small, done = self.model.get_weights(), k
            self.model.set_weights(begin)
            self._step(batches[:k].ravel(), k * learning_rate)
            shares.append(_distance(small, self.model.get_weights()) / _distance(small, begin))
        self.model.set_weights(begin)
        return shares

    @tf.autograph.experimental.do_not_convert
    def _gradients(self, rows, weights):
        """Return loss, accuracy and gradients of a batch; `weights` are those of its images, 0 for padding."""
        labels = tf.gather(self._labels, rows)
        with tf.GradientTape() as tape:
            outputs = self.model(tf.gather(self._images, rows), training=True)
            loss = tf.reduce_mean(weights * tf.keras.losses.sparse_categorical_crossentropy(labels, outputs))
        right = tf.cast(tf.argmax(outputs, axis=-1) == labels, tf.float32)
        return loss, tf.reduce_mean(weights * right), tape.gradient(loss, self.model.trainable_variables)

    @tf.function(input_signature=(tf.TensorSpec([None, None], tf.int64), tf.TensorSpec([None, None], tf.float32),
                                  tf.TensorSpec([None], tf.float32), tf.TensorSpec([], tf.float32)))
    def _epoch(self, rows, weights, learning_rates, done):
        """Train for an epoch after `done` steps, and return the mean loss and accuracy of its images."""
        losses, rights, images = tf.constant(0.0), tf.constant(0.0), tf.constant(0.0)
        for step in tf.range(tf.shape(rows)[0]):
            loss, right, gradients = self._gradients(rows[step], weights[step])
            self._update(gradients, learning_rates[step], done + tf.cast(step, tf.float32) + 1)
            count = tf.reduce_sum(tf.cast(weights[step] > 0, tf.float32))
            losses, rights, images = losses + count * loss, rights + count * right, images + count
        return losses / images, rights / images

    @tf.autograph.experimental.do_not_convert
    def _update(self, gradients, learning_rate, step) -> None:
        """Apply the gradients of a step, counted from 1."""
        for weight, first, second, gradient in zip(
                self.model.trainable_variables, *self._moments, gradients, strict=True):
            if self.optimizer == "sgd":
                # The velocity holds gradients, not steps. Keras' holds steps, which needs a correction whenever the
                # learning rate changes (Goyal et al. 2017, remark 3); at a constant one, both are the same.
                first.assign(self.momentum * first + gradient)
                weight.assign_sub(learning_rate * first)
            else:
                first.assign(BETA_1 * first + (1 - BETA_1) * gradient)
                second.assign(BETA_2 * second + (1 - BETA_2) * gradient**2)
                scale = learning_rate * tf.sqrt(1 - BETA_2**step) / (1 - BETA_1**step)
                weight.assign_sub(scale * first / (tf.sqrt(second) + EPSILON))

    @tf.function(input_signature=(tf.TensorSpec([None], tf.int64), tf.TensorSpec([], tf.float32)), autograph=False)
    def _step(self, rows, learning_rate):
        """Take one step of plain SGD."""
        _, _, gradients = self._gradients(rows, tf.ones_like(rows, tf.float32))
        for weight, gradient in zip(self.model.trainable_variables, gradients, strict=True):
            weight.assign_sub(learning_rate * gradient)

    @tf.function(input_signature=(), autograph=False)
    def _evaluated(self):
        images, labels = self._held_out
        *hidden, outputs = self._layers(images)
        loss = tf.reduce_mean(tf.keras.losses.sparse_categorical_crossentropy(labels, outputs))
        right = tf.reduce_mean(tf.cast(tf.argmax(outputs, axis=-1) == labels, tf.float32))
        alive = [tf.reduce_any(layer != 0, axis=list(range(len(layer.shape) - 1))) for layer in hidden]
        return loss, right, 1 - tf.reduce_mean(tf.cast(tf.concat(alive, axis=0), tf.float32))


def _distance(one: list[np.ndarray], other: list[np.ndarray]) -> float:
    return float(np.sqrt(sum(((a - b) ** 2).sum() for a, b in zip(one, other, strict=True))))
