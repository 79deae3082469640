"""From positions to batches: tf.data without its autotuning, for which short epochs wait seconds."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from labs.datasets.augment import Augment, draw, flip_and_shift, matrices
from labs.datasets.images import Images
from labs.datasets.noise import Noise
from labs.datasets.sharding import Shard
from labs.errors import LabError

AHEAD = 2  # Batches made ready while the model works on one.


def train_batches(
    images: np.ndarray | Images | Noise,
    labels: np.ndarray,
    shard: Shard,
    augment: Augment | None = None,
    *,
    epoch: int,
    seed: int,
    first_step: int = 0,
) -> tf.data.Dataset:
    """Return one worker's batches of one epoch: (x, y, weight), all of one shape.

    x stays uint8, a quarter of the bytes on the way to a GPU: models begin with `Rescaling`.

    Args:
        images: uint8 [n, height, width, channels].
        labels: [n].
        shard: Positions in `images` and `labels`, and weights.
        augment: How to vary the images; not at all by default.
        epoch: From 0; it and the seed decide on the variation of each image.
        seed: The same on all workers.
        first_step: Go on in the middle of an epoch.
    """
    draws = draw(len(images), seed, epoch) if augment else np.empty(0)

    def batch(step: int) -> list[np.ndarray]:
        rows = shard.rows[step]
        x, y, weight = images[rows], labels[rows], shard.weights[step]
        if augment and augment.turns:
            return [x, y, weight, matrices(draws[rows], augment, *x.shape[1:3])]
        if augment:
            x = flip_and_shift(x, draws[rows], augment)
        return [x, y, weight]

    size = shard.rows.shape[1]
    specs = [*_specs(images, labels, size), tf.TensorSpec([size], tf.float32)]
    if augment and augment.turns:
        specs.append(tf.TensorSpec([size, 8], tf.float32))
    batches = _dataset(batch, range(first_step, shard.steps), specs)
    if augment and augment.turns:
        batches = batches.map(_turn, num_parallel_calls=AHEAD, deterministic=True)
    return batches.prefetch(AHEAD)


def eval_batches(
    images: np.ndarray | Images | Noise, labels: np.ndarray, positions: np.ndarray, batch_size: int
) -> tf.data.Dataset:
    """Return batches (x, y) of the images at these positions, in their order; the last may be smaller.

    Args:
        images: uint8 [n, height, width, channels].
        labels: [n].
        positions: Of the images to judge; a worker's are `positions[rank::size]`.
        batch_size: Images per batch.
    """

    def batch(start: int) -> list[np.ndarray]:
        rows = positions[start : start + batch_size]
        return [images[rows], labels[rows]]

    starts = range(0, len(positions), batch_size)
    return _dataset(batch, starts, _specs(images, labels, None)).prefetch(AHEAD)


def lab_error(error: tf.errors.OpError) -> LabError | None:
    """Return the LabError inside TensorFlow's error if a batch could not be made; None if there is none."""
    found = re.search(r"LabError: (.*)", error.message or "")
    return LabError(found[1]) if found else None


def _specs(images: np.ndarray | Images | Noise, labels: np.ndarray, size: int | None) -> list[tf.TensorSpec]:
    return [tf.TensorSpec([size, *images.shape[1:]], images.dtype), tf.TensorSpec([size], labels.dtype)]


def _dataset(
    batch: Callable[[int], list[np.ndarray]], steps: range, specs: list[tf.TensorSpec]
) -> tf.data.Dataset:
    """One element for each step, made by Python in the background, one after the other."""

    @tf.autograph.experimental.do_not_convert
    def make(step):
        values = tf.numpy_function(batch, [step], [spec.dtype for spec in specs])
        for value, spec in zip(values, specs, strict=True):
            value.set_shape(spec.shape)
        return tuple(values)

    options = tf.data.Options()  # Each of these saves time at the start or the end of an epoch.
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.threading.private_threadpool_size = AHEAD
    return tf.data.Dataset.range(steps.start, steps.stop, steps.step).map(make).with_options(options)


def _turn(x, y, weight, matrix):
    turned = tf.raw_ops.ImageProjectiveTransformV3(
        images=x, transforms=matrix, output_shape=x.shape[1:3], fill_value=0.0,
        interpolation="BILINEAR", fill_mode="NEAREST",
    )  # fmt: skip
    return turned, y, weight
