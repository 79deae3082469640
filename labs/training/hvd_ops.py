"""All of Horovod's Keras surface, in one place: a second stack would be a second module like this."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from importlib import metadata
from typing import Any

from labs.run.errors import LabError


def refuse_unsynchronised_keras(version: str) -> None:
    """Stop on a Keras whose optimizers Horovod 0.28 does not synchronise.

    Raises:
        LabError: The version is 3 or later: training would run without an error and never reduce a gradient.
    """
    if int(version.split(".")[0]) >= 3:
        raise LabError(
            f"Keras {version} never exchanges a gradient under Horovod {metadata.version('horovod')} and tells nobody;"
            " install the pinned Keras with `make env`"
        )


refuse_unsynchronised_keras(metadata.version("keras"))  # Here: the imports below fail on it and name no cause.

import horovod.tensorflow as hvd  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from horovod.tensorflow.keras import DistributedOptimizer  # noqa: E402

from labs.training import timeline  # noqa: E402
from labs.training.optimizers import in_one_pass  # noqa: E402

# Horovod's own code uses TensorFlow's control flow, and yet is handed to AutoGraph, which takes many seconds of every
# start to rewrite it. Measured on the 17 gradients of lab 10: see docs/how-we-measure.md.
for module in (hvd, hvd.functions):
    module._make_subgraph = functools.partial(tf.function, autograph=False)


def distributed_optimizer(optimizer, *, fp16_allreduce: bool = False, backward_passes_per_step: int = 1):
    """Wrap an optimizer so that every step applies the gradient averaged over all workers."""
    # Horovod: between computing the gradients and applying them, average them over all workers.
    return DistributedOptimizer(
        in_one_pass(optimizer),
        compression=hvd.Compression.fp16 if fp16_allreduce else hvd.Compression.none,
        backward_passes_per_step=backward_passes_per_step,
        # Horovod: adds up what the passes give and does not divide: the learning rate would grow with their number.
        average_aggregated_gradients=backward_passes_per_step > 1,
    )


def undistributed(optimizer):
    """Return a plain optimizer like a wrapped one, whose steps this worker takes by itself."""
    plain: Any = type(optimizer).__bases__[0]  # Horovod: wrapping makes a subclass of the optimizer's own class.
    return plain.from_config(optimizer.get_config())


def barrier() -> None:
    """Wait until all workers are here."""
    # Horovod: an all-reduce ends on no worker before it has begun on all.
    hvd.allreduce(np.zeros(1, np.float32), name="barrier")


def broadcast_state(model: tf.keras.Model) -> None:
    """Give every worker rank 0's weights and optimizer state, so that all begin at one point."""
    # Horovod: workers that begin at different weights and apply equal gradients stay different for ever.
    variables = [*model.variables, *model.optimizer.variables]
    timeline.note_sizes(variables)
    hvd.broadcast_variables(variables, root_rank=0)


def average_statistics(model: tf.keras.Model) -> None:
    """Average the weights that no gradient moves, such as batch norm's running mean and variance.

    Each worker's statistics come from its own images, and no gradient exchange makes them equal.
    """
    statistics = [weight for weight in model.non_trainable_weights if weight.dtype.is_floating]
    if not statistics:
        return
    # Horovod: without this every worker would validate, and rank 0 would save, another model.
    averages = hvd.grouped_allreduce([weight.value() for weight in statistics], op=hvd.Average)
    for weight, average in zip(statistics, averages, strict=True):
        weight.assign(average)


def mean_over_workers(means: dict[str, float], count: float) -> dict[str, float]:
    """Return the means over all samples from each worker's means and its number (or weight) of samples.

    A plain mean of the workers' means, which is what Horovod's MetricAverageCallback takes, is wrong as soon as they
    hold unequal numbers of samples.
    """
    names = sorted(means)
    sums = np.array([means[name] * count if count else 0.0 for name in names] + [count], dtype=np.float64)
    # Horovod: sums travel, not means.
    totals = hvd.allreduce(sums, name="metrics", op=hvd.Sum).numpy()
    return {name: float(total / totals[-1]) for name, total in zip(names, totals[:-1], strict=True)}


def gather(row: Iterable[int]) -> np.ndarray:
    """Return every worker's row of integers, int64 [size, len(row)]."""
    # Horovod: allgather stacks along the first axis, so each worker sends a matrix of one row.
    return hvd.allgather(np.array([list(row)], dtype=np.int64), name="gather").numpy()


def gather_in_graph(row: Iterable[int]) -> np.ndarray:
    """Return what `gather` does, for what workers ask each other while they train."""
    return _gather_in_graph(np.array([list(row)], dtype=np.int64)).numpy()


@tf.function(input_signature=[tf.TensorSpec([1, None], tf.int64)], autograph=False)
def _gather_in_graph(row: tf.Tensor) -> tf.Tensor:
    # Horovod: the timeline has this name from a graph alone; and how often workers ask hangs on the machine's speed.
    return hvd.allgather(row, name="HorovodAllgather_asked")


def gather_object(value):
    """Return every worker's value, as a list by rank."""
    # Horovod: allgather_object pickles among this run's own workers; nothing from outside is read by it.
    return hvd.allgather_object(value)


def broadcast_object(value):
    """Return rank 0's value on every worker."""
    # Horovod: what one worker alone has read or decided, all must know.
    return hvd.broadcast_object(value, root_rank=0)
