"""Batches from positions, with tf.data but without its autotuning, which delays short epochs by seconds.

Training images may be flipped and shifted, identically for any number of workers.
"""

import dataclasses
from collections.abc import Callable

import cv2
import numpy as np
import tensorflow as tf

from labs.datasets.arrays import align
from labs.datasets.image_cache import ImageCache
from labs.datasets.sharding import Shard

AHEAD = 2  # Batches prepared while the model works on one.


@dataclasses.dataclass(frozen=True)
class Augment:
    """How much training images are augmented."""

    flip: bool = True  # Mirror half of the images, left to right.
    shift: float = 0.1  # Move by up to this share of the side, each way, in whole pixels.


def random_params(n: int, seed: int, epoch: int) -> np.ndarray:
    """Return each image's random augmentation parameters in an epoch: float32 [n, 3] in [-1, 1).

    They belong to an image's position, not to a worker: 2 workers with batch size 32 see what 1 sees with 64.
    """
    generator = np.random.Generator(np.random.PCG64([seed, epoch, 1]))
    return generator.random((n, 5), np.float32)[:, :3] * 2 - 1  # The last two were once a rotation and a zoom.


def flip_and_shift(images: np.ndarray, params: np.ndarray, augment: Augment) -> np.ndarray:
    """Return augmented images [k, height, width, channels]: out[y, x] = mirrored[y + down, x + right].

    Exposed edges are filled with the nearest pixels.
    """
    augmented = np.empty_like(images)
    flips = (params[:, 0] < 0) & augment.flip
    shifts = np.rint(params[:, 1:] * augment.shift * images.shape[1:3]).astype(int)
    for image, out, flip, (down, right) in zip(images, augmented, flips, shifts, strict=True):
        height, width = image.shape[:2]
        mirrored = cv2.flip(image, 1) if flip else image
        source = mirrored[max(0, down) : height + min(0, down), max(0, right) : width + min(0, right)]
        edges = (max(0, -down), max(0, down), max(0, -right), max(0, right))
        out[...] = cv2.copyMakeBorder(source, *edges, cv2.BORDER_REPLICATE).reshape(out.shape)
    return augmented


def train_batches(images: np.ndarray | ImageCache, labels: np.ndarray, shard: Shard,
                  augment: Augment | None = None, *, epoch: int, seed: int, first_step: int = 0) -> tf.data.Dataset:
    """Return one worker's batches of one epoch: (x, y, weight), all of the same shape.

    x stays uint8, a quarter of the bytes to transfer to a GPU: models begin with `Rescaling`. Epoch (from 0) and seed,
    the same on all workers, determine each image's augmentation. `first_step` continues in the middle of an epoch.
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
