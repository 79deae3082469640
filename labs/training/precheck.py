"""Memory precheck: refuses a batch that cannot fit into this machine's memory, before the first step."""

from __future__ import annotations

import contextlib
import math

import psutil
import tensorflow as tf

from labs.run.errors import LabError


def refuse_too_large(model: tf.keras.Model, batch_size: int) -> None:
    """Raise for a batch whose largest activation alone exceeds this machine's memory.

    TensorFlow would end with a segmentation fault (oneDNN does not check its allocations) or with pages of output. On a
    GPU TensorFlow's own error names the cause, and nothing is checked here.

    Args:
        model: Built.
        batch_size: Images that pass through the model at once.

    Raises:
        LabError: Names the memory needed and the memory available.
    """
    total = psutil.virtual_memory().total
    needed = batch_size * _largest_activation(model)
    if needed > total and not tf.config.list_logical_devices("GPU"):
        raise LabError(f"out of memory: a batch of {batch_size} images needs more than {needed / 1e9:,.0f} GB, and "
                       f"this machine has {total / 1e9:,.0f}; lower --batch-size")


def _largest_activation(model: tf.keras.Model) -> int:
    """Return the bytes per image of the largest output of a layer."""
    sizes = [0]
    for layer in model.layers:
        with contextlib.suppress(AttributeError, RuntimeError):  # A nested layer may have no output here.
            outputs = [each for each in tf.nest.flatten(layer.output) if None not in each.shape[1:]]
            sizes += [math.prod(each.shape[1:]) * tf.as_dtype(each.dtype).size for each in outputs]
    return max(sizes)
