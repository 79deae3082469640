"""Bytes on the wire per training step: predicted from the parameters, counted on the network interfaces.

In a ring all-reduce of S bytes N workers together send 2 (N - 1) S (Patarasuk and Yuan 2009, Bandwidth optimal
all-reduce algorithms). Horovod's workers also negotiate in every cycle which tensors are ready, whether they train or
not. These bytes are counted in steps that exchange no gradients, and subtracted. `exchanged` reads from Horovod's
timeline, a list of Chrome trace events, which tensors they were.
"""

import collections
import json
import math
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import horovod.tensorflow as hvd
import psutil
import tensorflow as tf

from labs.datasets.sharding import steps_per_epoch
from labs.datasets.splits import Subset
from labs.measure.collectives import mpi
from labs.measure.throughput import gradient_bytes
from labs.training import hvd_ops
from labs.training.keras_internals import take_steps
from labs.training.loop import compile_for, local_copy
from labs.training.workers import Job

Row = dict[str, Any]
LOSS = "sparse_categorical_crossentropy"
KINDS = (
    (r"Horovod\w+_Distributed", "gradients"),
    (r"HorovodBroadcast_", "initial weights and optimizer state"),
    (r"HorovodBroadcast", "decisions of rank 0"),
    (r"HorovodAllgather_asked", "questions: save, stop, pace"),
    (r"HorovodAllgather", "checks: config, data, digests of weights"),
    (r"HorovodGroupedAllreduce", "batch-norm statistics"),
    (r"HorovodAllreduce", "metrics"),
)
"""Kinds of `fit`'s tensors, by the first pattern that matches a name; outside a graph Horovod chooses the names."""
COLLECTIVE = re.compile(r"(?!MEMCPY|NEGOTIATE)\w+_(ALLREDUCE|ALLGATHER|BCAST|ALLTOALL|REDUCESCATTER)")
BYTES = {"bool": 1, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "float16": 2, "bfloat16": 2, "int32": 4,
         "float32": 4, "int64": 8, "float64": 8}


def compile_distributed(job: Job, model: tf.keras.Model, optimizer: tf.keras.optimizers.Optimizer, *,
                        fp16_allreduce: bool = False) -> None:
    """Compile a model as `fit` does, with the same weights on all workers, to measure its steps."""
    # Horovod: what `fit` does: wrap the optimizer, and broadcast the initial weights.
    compile_for(model, hvd_ops.distributed_optimizer(
        optimizer, fp16_allreduce=fp16_allreduce, device=job.layout.exchange_device), LOSS, ())
    hvd_ops.broadcast_state(model)


def measure(job: Job, model: tf.keras.Model, train: Subset, batch_sizes: Sequence[int], *,
            fp16_allreduce: bool = False, steps: int = 20) -> list[dict[str, Any]]:
    """Return a row per batch size: predicted and measured bytes per step, of all nodes together; train further."""
    local, rows = local_copy(model, LOSS), []
    each = gradient_bytes(model, fp16_allreduce)
    expected = 2 * (job.size - 1) * each
    for batch_size in batch_sizes:
        same = batches(job, train, batch_size)
        for each_model in (local, model):
            take_steps(each_model, same, 2)  # The first call traces the model.
        control, idle = count(job, lambda: take_steps(local, same, steps))  # noqa: B023 - called at once
        counted, seconds = count(job, lambda: take_steps(model, same, steps))  # noqa: B023
        measured = max(0.0, counted - control / idle * seconds) / steps
        rows.append({
            "batch_size": batch_size, "gradient_bytes": each, "predicted_bytes_per_step": expected,
            "measured_bytes_per_step": measured, "difference": measured / expected - 1 if expected else None,
            "control_bytes_per_sec": control / idle,
            "steps_per_epoch": steps_per_epoch(len(train), batch_size, job.size),
        })
    return rows


def batches(job: Job, train: Subset, batch_size: int):
    """Return an iterator that repeats one batch of this worker; TensorFlow need not trace again for its size."""
    rows = train.positions[job.rank::job.size][:batch_size]
    batch = train.images[rows], train.labels[rows], tf.ones(len(rows))
    data = tf.data.Dataset.from_tensors(batch).repeat().map(lambda *tensors: tuple(
        tf.compat.v1.placeholder_with_default(tensor, [None, *tensor.shape[1:]]) for tensor in tensors))
    return iter(data)


def count(job: Job, action) -> tuple[int, float]:
    """Return the bytes that all nodes' interfaces send while all workers run an action, and the seconds it takes."""
    barrier = mpi().Barrier  # Not Horovod's, whose bytes would be counted.
    barrier()
    before, began = _sent(), time.perf_counter()
    action()
    barrier()
    sent, seconds = _sent() - before, time.perf_counter() - began
    # Horovod: the counters belong to a node, so one worker per node reports them.
    by_rank = hvd_ops.gather_object((sent if job.layout.local_rank == 0 else 0, seconds))
    return sum(bytes_ for bytes_, _ in by_rank), max(seconds for _, seconds in by_rank)


def _sent() -> int:
    """Return the bytes that this node's network interfaces have sent, including the loopback."""
    return sum(one.bytes_sent for one in psutil.net_io_counters(pernic=True).values())


def largest_difference(variables: Sequence[tf.Variable]) -> float:
    """Return the largest absolute difference between a value on rank 0 and on another worker."""
    flat = tf.concat([tf.reshape(tf.cast(variable, tf.float32), [-1]) for variable in variables], axis=0)
    # Horovod: rank 0's values, to compare with each worker's own.
    zero = hvd.broadcast(flat, root_rank=0, name="spread")
    return max(hvd_ops.gather_object(float(tf.reduce_max(tf.abs(flat - zero)))))


def exchanged(job: Job) -> list[Row]:
    """End the run's timeline and return a row per kind of exchange so far, on rank 0, which wrote it; else none.

    `exchanges` counts tensors, `messages` the messages into which they were fused; `bytes`, the most first, and their
    `share` exclude transport overhead.
    """
    hvd.stop_timeline()
    if job.rank:
        return []
    kinds: dict[str, list[Row]] = {}
    for row in _exchanges(json.loads((job.folder / hvd_ops.TIMELINE).read_bytes())):
        kind = next((kind for pattern, kind in KINDS if re.search(pattern, row["tensor"])), row["tensor"])
        kinds.setdefault(kind, []).append(row)
    rows: list[Row] = []
    for kind, group in kinds.items():
        known = [row["bytes"] for row in group if row["bytes"] is not None]
        rows.append({"kind": kind, "exchanges": len(group), "messages": len({row["message"] for row in group}),
                     "bytes": sum(known) if known else None})
    total = sum(row["bytes"] or 0 for row in rows)
    return [row | {"share": (row["bytes"] or 0) / total} for row in sorted(rows, key=lambda row: -(row["bytes"] or 0))]


def _exchanges(events: Iterable[Row]) -> Iterator[Row]:
    """Yield tensor, message and bytes of each exchange; tensors with the same `message` were fused."""
    names: dict[int, str] = {}
    depths, messages = collections.Counter[int](), dict[int, int]()
    message, fusing = 0, False
    for event in events:
        tensor, phase = event.get("pid", -1), event["ph"]
        if phase == "M":
            names[tensor] = event["args"].get("name", names.get(tensor, ""))
        elif phase == "B":
            transfer = bool(COLLECTIVE.fullmatch(event["name"]))
            message += transfer and not fusing  # A fused transfer begins for all its tensors in a row.
            fusing = transfer
            depths[tensor] += 1
            if transfer:
                messages[tensor] = message
        elif phase == "E" and depths[tensor]:  # Phases that began before the timeline are left out.
            fusing = False
            depths[tensor] -= 1
            if not depths[tensor] and tensor in messages:
                yield {"tensor": names[tensor], "message": messages.pop(tensor),
                       "bytes": _bytes(names[tensor], event.get("args"))}


def _bytes(name: str, args: dict[str, str] | None) -> int | None:
    """Return a tensor's bytes; Horovod describes it as "float32" and "[3, 3, 16]", but not if rank 0 broadcasts it."""
    return BYTES[args["dtype"]] * math.prod(map(int, re.findall(r"\d+", args["shape"]))) if args else \
        hvd_ops.BROADCAST_BYTES.get(name)
