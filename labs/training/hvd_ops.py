"""Horovod for Keras: the distributed optimizer, the collectives that the kit uses, and Horovod's timeline."""

import functools
import re
from collections.abc import Callable, Iterable
from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

from horovod_keras3 import DistributedOptimizer
from labs.run.errors import LabError
from labs.training import keras_internals
from labs.training.keras_internals import after_all, fused

TIMELINE = "timeline.json"
"""Every message as rank 0 saw it, for ui.perfetto.dev."""
BROADCAST_BYTES: dict[str, int] = {}
"""Sizes of the variables that rank 0 broadcast, by their names in the timeline, which omits the sizes."""

# Horovod passes its own code through AutoGraph, although it uses TensorFlow's control flow already, and has no switch
# for it. Lab 10, 17 gradients: the first epoch takes 44 CPU seconds with AutoGraph, 10 without (docs/speed.md).
for module in (hvd, hvd.functions):
    module._make_subgraph = functools.partial(tf.function, autograph=False)


def distributed_optimizer(optimizer, *, fp16_allreduce: bool = False, backward_passes_per_step: int = 1,
                          device: str = ""):
    """Return an optimizer whose every step applies the gradient averaged over all workers; arguments as of `fit`.

    The gradients are exchanged on `device`, see `Layout.exchange_device`.
    """
    # Horovod: between computing the gradients and applying them, average them over all workers.
    distributed = DistributedOptimizer(
        fused(optimizer),
        device_dense=device,
        device_sparse=device,
        compression=hvd.Compression.fp16 if fp16_allreduce else hvd.Compression.none,
        backward_passes_per_step=backward_passes_per_step,
        # Horovod: by default adds up the passes' gradients: the learning rate would grow with their number.
        average_aggregated_gradients=backward_passes_per_step > 1,
    )
    if hvd.size() > 1:
        distributed.horovod.reduce = TimedExchange(distributed.horovod.reduce)
    return distributed


class TimedExchange:
    """An exchange of gradients that adds up how long this worker waited: the slowest worker waits least."""

    def __init__(self, reduce):
        self._reduce = reduce
        with tf.device("CPU"):
            self.seconds = tf.Variable(0.0, trainable=False, dtype=tf.float64)

    def __getattr__(self, name):
        return getattr(self._reduce, name)

    def __call__(self, grads, *arguments):
        with after_all(grads):
            began = tf.timestamp()
        means = self._reduce(grads, *arguments)
        with after_all(means):
            self.seconds.assign_add(tf.timestamp() - began)
        return means


def seconds_waited(optimizer) -> float:
    """Return the seconds that this worker has waited in the exchange of gradients so far; 0 if it is not measured."""
    exchange = getattr(getattr(optimizer, "horovod", None), "reduce", None)
    return float(exchange.seconds) if isinstance(exchange, TimedExchange) else 0.0


def barrier() -> None:
    """Wait until every worker has called this function."""
    # Horovod: an all-reduce ends on no worker before it has begun on all.
    hvd.allreduce(np.zeros(1, np.float32), name="barrier")


def broadcast_state(model: tf.keras.Model) -> None:
    """Give every worker rank 0's weights and optimizer state; the model is compiled and built."""
    variables = keras_internals.state(model)
    # Horovod: names a broadcast after its variable, with all other characters replaced.
    BROADCAST_BYTES.update({f"HorovodBroadcast_{re.sub('[^a-zA-Z0-9_]', '_', variable.name)}":
                            variable.shape.num_elements() * variable.dtype.size for variable in variables})
    # Horovod: workers that start from different weights and apply equal gradients stay different.
    hvd.broadcast_variables(variables, root_rank=0)


def average_statistics(model: tf.keras.Model) -> None:
    """Average the non-trainable weights over all workers, such as batch norm's running mean and variance."""
    weights = [keras_internals.tf_variable(weight) for weight in model.non_trainable_weights]
    if statistics := [weight for weight in weights if weight.dtype.is_floating]:
        # Horovod: exchanges gradients only. Each worker's statistics come from its own images: without this each would
        # validate a different model, and rank 0 would save its own.
        averages = hvd.grouped_allreduce([weight.value() for weight in statistics], op=hvd.Average)
        for weight, average in zip(statistics, averages, strict=True):
            weight.assign(average)


def mean_over_workers(means: dict[str, float], count: float) -> dict[str, float]:
    """Return the means over all workers' samples, by name; `count` is the number (or weight) of this worker's."""
    names = sorted(means)
    sums = np.array([means[name] * count if count else 0.0 for name in names] + [count], dtype=np.float64)
    # Horovod: workers exchange sums, not means.
    totals = hvd.allreduce(sums, name="metrics", op=hvd.Sum).numpy()
    return {name: float(total / totals[-1]) for name, total in zip(names, totals[:-1], strict=True)}


def gather(row: Iterable[int], name: str = "checked") -> np.ndarray:
    """Return every worker's row of integers, int64 [size, len(row)], by rank.

    In Horovod's timeline, decisions between steps, whose number depends on the workers' speed, have the name "asked".
    """
    return _gather(np.array([list(row)], dtype=np.int64), f"HorovodAllgather_{name}").numpy()


@tf.function(autograph=False)
def _gather(row: tf.Tensor, name: str) -> tf.Tensor:
    # Horovod: uses the name in graphs alone. It concatenates along the first axis: each worker sends a matrix of a row.
    return hvd.allgather(row, name=name)


def gather_object(value):
    """Return every worker's value, as a list by rank; any value that can be pickled."""
    with tf.device("CPU"):  # On GPUs that workers share, NCCL would fail before `refuse_shared_gpus` can say so.
        # Horovod: allgather_object unpickles only what this run's own workers send.
        return hvd.allgather_object(value)


def broadcast_object(value):
    """Return rank 0's value on every worker; any value that can be pickled."""
    # Horovod: what only rank 0 has read or decided, all workers must know.
    return hvd.broadcast_object(value, root_rank=0)


def call_on_rank_0(function: Callable[[], Any]) -> Any:
    """Call a function on rank 0 alone; return its result on every worker, or raise its LabError on every worker."""
    result = problem = None
    if hvd.rank() == 0:
        try:
            result = function()
        except LabError as error:
            problem = str(error)
    result, problem = broadcast_object((result, problem))
    if problem:
        raise LabError(problem)
    return result
