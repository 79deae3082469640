"""Bytes on the wire per training step: predicted from the parameters, counted on the network interfaces.

A ring all-reduce of S bytes sends 2 (N - 1) / N x S from each of N workers, whatever the batch; all of them together
send 2 (N - 1) S. Besides, Horovod's workers ask each other in every cycle what is ready, whether they train or not:
that is counted too, in steps whose gradients stay at home, and taken off.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import horovod.tensorflow as hvd
import psutil
import tensorflow as tf

from labs.datasets.sharding import steps_per_epoch
from labs.datasets.splits import Subset
from labs.measure import collectives
from labs.training import hvd_ops
from labs.training.loop import local_copy, take_steps
from labs.training.workers import Job

SILENT = 0.01
"""Below this share of the predicted bytes nothing of the gradients has crossed an interface."""


def gradient_bytes(model: tf.keras.Model, fp16_allreduce: bool = False) -> int:
    """Return the bytes of one step's gradients as they are sent: those of each trainable parameter.

    Args:
        model: Any Keras model.
        fp16_allreduce: Whether `hvd.Compression.fp16` halves them: it casts each floating-point gradient to 2 bytes.
    """
    sizes = [2 if fp16_allreduce and weight.dtype.is_floating else weight.dtype.size
             for weight in model.trainable_weights]
    return sum(weight.shape.num_elements() * size
               for weight, size in zip(model.trainable_weights, sizes, strict=True))


def predicted(nbytes: int, size: int) -> int:
    """Return what all workers of a ring together send to reduce so many bytes: N x 2 (N - 1) / N of them."""
    return 2 * (size - 1) * nbytes


def measure(job: Job, model: tf.keras.Model, train: Subset, batch_sizes: Sequence[int], steps: int = 20, *,
            fp16_allreduce: bool = False, loss: str = "sparse_categorical_crossentropy") -> list[dict[str, Any]]:
    """Return a row per batch size: bytes per step predicted and measured, on all nodes together.

    Args:
        job: The run.
        model: Trained by `fit`; some more steps are taken.
        train: What it was trained on.
        batch_sizes: Images per worker and step.
        steps: How many steps to count.
        fp16_allreduce: Whether the model's optimizer sends its gradients in half precision.
        loss: Name of the Keras loss.
    """
    apart = local_copy(model, loss)
    each = gradient_bytes(model, fp16_allreduce)
    expected = predicted(each, job.size)
    rows = []
    for batch_size in batch_sizes:
        batches = _batches(job, train, batch_size)
        for one in (apart, model):
            take_steps(one, batches, 2)  # The first call traces the model.
        control, idle = _count(job, lambda: take_steps(apart, batches, steps))  # noqa: B023 - called at once
        counted, seconds = _count(job, lambda: take_steps(model, batches, steps))  # noqa: B023
        measured = max(0.0, counted - control / idle * seconds) / steps
        rows.append({
            "batch_size": batch_size, "steps": steps, "gradient_bytes": each, "predicted_bytes_per_step": expected,
            "measured_bytes_per_step": measured, "control_bytes_per_sec": control / idle, "counted": counted,
            "difference": measured / expected - 1 if expected else None,
            "crossed": route(measured, expected), "seconds_per_step": seconds / steps,
            "steps_per_epoch": steps_per_epoch(len(train), batch_size, job.size),
        })
    return rows


def route(measured: float, expected: float) -> str:
    """Say where the gradients went."""
    if not expected:
        return "nowhere: one worker"
    return "network interfaces" if measured > SILENT * expected else "no interface: shared memory"


def _batches(job: Job, train: Subset, batch_size: int):
    """Return an iterator that repeats one batch of this worker's, of a size that its type does not tell.

    So all batch sizes are trained by one traced function.
    """
    rows = train.positions[job.rank::job.size][:batch_size]
    batch = train.images[rows], train.labels[rows], tf.ones(len(rows))
    data = tf.data.Dataset.from_tensors(batch).repeat().map(lambda *parts: tuple(
        tf.compat.v1.placeholder_with_default(part, [None, *part.shape[1:]]) for part in parts))
    return iter(data)


def _count(job: Job, action) -> tuple[int, float]:
    """Return the bytes that all nodes' interfaces sent while all workers did something, and its seconds."""
    collectives.barrier()
    before, began = _sent(), time.perf_counter()
    action()
    collectives.barrier()
    sent, seconds = _sent() - before, time.perf_counter() - began
    # Horovod: the counters are those of a node, and one of its workers reads them.
    everyone = hvd_ops.gather_object((sent if job.layout.local_rank == 0 else 0, seconds))
    return sum(bytes_ for bytes_, _ in everyone), max(seconds for _, seconds in everyone)


def _sent() -> int:
    """Return the bytes that this node's interfaces have sent, the loopback among them."""
    return sum(one.bytes_sent for one in psutil.net_io_counters(pernic=True).values())


def largest_difference(variables: Sequence[tf.Variable]) -> float:
    """Return the largest difference of any value between rank 0 and another worker.

    Args:
        variables: The same ones on all workers.
    """
    flat = tf.concat([tf.reshape(tf.cast(variable, tf.float32), [-1]) for variable in variables], axis=0)
    # Horovod: rank 0's values, against each worker's own.
    zero = hvd.broadcast(flat, root_rank=0, name="spread")
    return max(hvd_ops.gather_object(float(tf.reduce_max(tf.abs(flat - zero)))))
