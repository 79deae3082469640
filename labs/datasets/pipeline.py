"""Batches from positions, with tf.data but without its autotuning, which delays short epochs by seconds."""

import re
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from labs.datasets.arrays import align
from labs.datasets.augment import Augment, flip_and_shift, random_params
from labs.datasets.image_cache import ImageCache
from labs.datasets.sharding import Shard
from labs.run.errors import LabError

AHEAD = 2  # Batches prepared while the model works on one.


def train_batches(images: np.ndarray | ImageCache, labels: np.ndarray, shard: Shard,
                  augment: Augment | None = None, *, epoch: int, seed: int, first_step: int = 0) -> tf.data.Dataset:
    """Return one worker's batches of one epoch: (x, y, weight), all of the same shape.

    x stays uint8, a quarter of the bytes to transfer to a GPU: models begin with `Rescaling`. Epoch and seed, the same
    on all workers, determine each image's augmentation.

    Args:
        images: uint8 [n, height, width, channels].
        labels: [n].
        shard: Positions in `images` and `labels`, and weights.
        augment: How to vary the images; by default they are not varied.
        epoch: From 0.
        seed: Of the augmentation.
        first_step: Step to start from, to continue in the middle of an epoch.
    """
    read = _make_reader(images, labels)
    columns = [shard.rows, shard.weights]
    if augment:
        columns.append(random_params(len(images), seed, epoch)[shard.rows])

    def batch(rows, weights, params=None):
        x, y = read(rows)
        if augment:
            # TensorFlow never frees what a Python function refers to. A captured array would leak memory in each epoch.
            moved = tf.numpy_function(lambda x, params: flip_and_shift(x, params, augment), [x, params], x.dtype)
            moved.set_shape(x.shape)
            x = moved
        return x, y, weights

    steps = tf.data.Dataset.from_tensor_slices(tuple(column[first_step:] for column in columns))
    return _map_in_background(steps, batch)


def eval_batches(images: np.ndarray | ImageCache, labels: np.ndarray, positions: np.ndarray,
                 batch_size: int) -> tf.data.Dataset:
    """Return batches (x, y) of the images at these positions, in order; the last batch may be smaller.

    A worker evaluates `positions[rank::size]`.
    """
    steps = tf.data.Dataset.from_tensor_slices(positions).batch(batch_size)
    return _map_in_background(steps, _make_reader(images, labels))


def lab_error(error: tf.errors.OpError) -> LabError | None:
    """Return the LabError inside TensorFlow's error if reading a batch raised one, else None."""
    match = re.search(r"LabError: (.*)", error.message or "")
    return LabError(match[1]) if match else None


def _map_in_background(steps: tf.data.Dataset, batch: Callable) -> tf.data.Dataset:
    """Apply `batch` to each element in the background, a few batches ahead."""
    options = tf.data.Options()  # Each of these saves time at the start or the end of an epoch.
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.threading.private_threadpool_size = AHEAD
    return steps.map(tf.autograph.experimental.do_not_convert(batch)).prefetch(AHEAD).with_options(options)


def _make_reader(images: np.ndarray | ImageCache, labels: np.ndarray) -> Callable:
    """Return a function that reads images and labels at rows [k].

    If the images are in memory, TensorFlow gathers them there; only otherwise is Python called. For the small models of
    the labs, a Python call per batch would cost a third of a step.
    """
    memory = images.memory if isinstance(images, ImageCache) else images
    y = tf.convert_to_tensor(labels)
    if memory is not None:
        x = tf.experimental.dlpack.from_dlpack(align(memory).__dlpack__())  # The same memory if it is aligned.
        return lambda rows: (tf.gather(x, rows), tf.gather(y, rows))

    def read(rows):
        x = tf.numpy_function(images.__getitem__, [rows], images.dtype)
        x.set_shape([*rows.shape, *images.shape[1:]])
        return x, tf.gather(y, rows)

    return read
