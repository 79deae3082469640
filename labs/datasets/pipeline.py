"""From positions to batches: tf.data without its autotuning, for which short epochs wait seconds."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from labs.datasets.arrays import in_place
from labs.datasets.augment import Augment, flip_and_shift, matrices, random_params
from labs.datasets.image_cache import Images
from labs.datasets.sharding import Shard
from labs.datasets.synthetic.noise import Noise
from labs.run.errors import LabError

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
    read = _reader(images, labels, shard.rows)
    columns = [shard.rows, shard.weights]
    if augment:
        columns.append(random_params(len(images), seed, epoch)[shard.rows])

    def batch(rows, weights, draws=None):
        x, y = read(rows)
        return _varied(x, draws, augment) if augment else x, y, weights

    steps = tf.data.Dataset.from_tensor_slices(tuple(column[first_step:] for column in columns))
    # Turning takes longer than many a step: two batches at a time, in their order all the same.
    return _made(steps, batch, at_once=AHEAD if augment and augment.turns else None)


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
    steps = tf.data.Dataset.from_tensor_slices(positions).batch(batch_size)
    return _made(steps, _reader(images, labels, positions))


def lab_error(error: tf.errors.OpError) -> LabError | None:
    """Return the LabError inside TensorFlow's error if a batch could not be made; None if there is none."""
    found = re.search(r"LabError: (.*)", error.message or "")
    return LabError(found[1]) if found else None


def _made(steps: tf.data.Dataset, batch: Callable, at_once: int | None = None) -> tf.data.Dataset:
    """Make a batch of each element in the background, some of them ahead of time."""
    options = tf.data.Options()  # Each of these saves time at the start or the end of an epoch.
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.threading.private_threadpool_size = AHEAD
    batches = steps.map(tf.autograph.experimental.do_not_convert(batch), at_once).prefetch(AHEAD)
    return batches.with_options(options)


def _reader(images: np.ndarray | Images | Noise, labels: np.ndarray, positions: np.ndarray) -> Callable:
    """Return what reads pictures and labels [k] at rows [k]: TensorFlow where they lie, or Python that makes them.

    Beside the small models of the labs, a call of Python for each batch would be a third of a step.
    """
    memory = images.kept(positions) if isinstance(images, Images) else images
    y = tf.convert_to_tensor(labels)
    if isinstance(memory, np.ndarray) and in_place(memory):
        x = tf.experimental.dlpack.from_dlpack(memory.__dlpack__())  # The same memory.
        return lambda rows: (tf.gather(x, rows), tf.gather(y, rows))

    def make(rows):
        made = tf.numpy_function(images.__getitem__, [rows], images.dtype)
        made.set_shape([*rows.shape, *images.shape[1:]])
        return made, tf.gather(y, rows)

    return make


def _varied(x, draws, augment: Augment):
    """Vary pictures [k, height, width, channels] as their draws [k, 5] say."""
    # TensorFlow keeps what Python functions hold on to for ever: no arrays, or memory would grow with each epoch.
    if augment.turns:
        height, width = x.shape[1:3]
        places = tf.numpy_function(lambda draws: matrices(draws, augment, height, width), [draws], tf.float32)
        return _turn(x, places)
    varied = tf.numpy_function(lambda x, draws: flip_and_shift(x, draws, augment), [x, draws], x.dtype)
    varied.set_shape(x.shape)
    return varied


def _turn(x, matrix):
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=x, transforms=matrix, output_shape=x.shape[1:3], fill_value=0.0,
        interpolation="BILINEAR", fill_mode="NEAREST",
    )  # fmt: skip
