"""Seconds of a step, images per second of the input pipeline, bytes of the gradients."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
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
