"""Where the time of an epoch goes: input + compute + communication + other = wall time.

Nothing is timed in the middle of a step, where work overlaps and a clock would disturb it. The parts are differences
between whole steps that differ in one thing:

    compute        a step on a batch in memory, whose gradients stay on this worker
    communication  what it takes longer when the gradients are exchanged, waiting for the slowest worker included
    input          what it takes longer still when the batches come from the pipeline
    other          what is left of the epoch: the start of the pipeline, callbacks, and how far the measurements differ
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from labs.datasets.pipeline import AHEAD, Augment, train_batches
from labs.datasets.sharding import shard
from labs.datasets.splits import Subset
from labs.measure import ledger_columns
from labs.training import hvd_ops
from labs.training.loop import local_copy, take_steps
from labs.training.workers import Job


def measure(
    job: Job,
    model: tf.keras.Model,
    train: Subset,
    history: Sequence[dict[str, float]],
    *,
    loss: str = "sparse_categorical_crossentropy",
    metrics: tuple[str, ...] = ("accuracy",),
    batch_size: int,
    augment: Augment | None = None,
    seconds: float = 0.2,
    rounds: int = 5,
) -> tuple[dict[str, float], list[dict[str, float]]]:
    """Return the ledger of an epoch, in seconds, and the rounds behind it, in seconds per step.

    Call it last: it goes on training the model.

    Args:
        job: The run.
        model: Trained by `fit`.
        train: What it was trained on, with the same batch_size, loss, metrics and augment.
        history: Of `fit`; the median of its epochs after the first is the wall time.
        loss: Name of a Keras loss.
        metrics: Names of Keras metrics.
        batch_size: Images per worker and step.
        augment: How the training images are varied.
        seconds: About how long to measure each kind of step in each round.
        rounds: How often, in turns, so that a machine that slows down slows all kinds alike.
    """
    wall, steps = _epoch(history)
    count = max(AHEAD, min(64, int(seconds / (wall / steps))))
    needed = 1 + (rounds + 1) * (AHEAD + 1 + count)
    batches = _epochs(job, train, batch_size, augment, range(len(history), len(history) + -(-needed // steps)))
    arms = _arms(model, batches, loss, metrics)
    for arm in arms.values():
        arm(count)  # The first call traces the model.
    found = []
    for number in range(rounds):
        turned = [*arms][number % len(arms):] + [*arms][:number % len(arms)]
        took = {kind: arms[kind](count) for kind in turned}
        found.append({"round": number + 1} | hvd_ops.mean_over_workers(took, 1.0))
    return _parts(found, wall, steps), found


def _epoch(history: Sequence[dict[str, float]]) -> tuple[float, int]:
    """Return the seconds and the steps of an epoch after the first."""
    later = history[1:] or history
    return float(np.median([row["train_seconds"] for row in later])), int(later[-1]["steps"])


def _epochs(job: Job, train: Subset, batch_size: int, augment: Augment | None, epochs: range) -> tf.data.Dataset:
    """Return this worker's batches of several epochs, one after the other."""
    seed = job.seed
    shards = (shard(train.positions, batch_size, job.rank, job.size, epoch, seed) for epoch in epochs)
    return functools.reduce(tf.data.Dataset.concatenate, (
        train_batches(train.images, train.labels, each, augment, epoch=each.epoch, seed=seed) for each in shards
    ))


def _arms(model: tf.keras.Model, batches: tf.data.Dataset, loss: str, metrics: Sequence[str]) -> dict[str, Callable]:
    """Return, by kind of step, a function that takes so many steps and returns the seconds of one."""
    apart = local_copy(model, loss, metrics)
    pipeline = iter(batches)
    memory = iter(tf.data.Dataset.from_tensors(next(pipeline)).repeat())

    def from_pipeline(count: int) -> float:
        take_steps(model, pipeline, AHEAD + 1)  # It has filled up while the other kinds were timed.
        return _time(model, pipeline, count)

    return {"alone": lambda count: _time(apart, memory, count),
            "exchanged": lambda count: _time(model, memory, count),
            "from_pipeline": from_pipeline}


def _time(model: tf.keras.Model, batches: Iterator, count: int) -> float:
    """Return the seconds of one of `count` steps, begun by all workers at once."""
    hvd_ops.barrier()
    began = time.perf_counter()
    take_steps(model, batches, count)
    return (time.perf_counter() - began) / count


def _parts(rounds: Sequence[dict[str, float]], wall: float, steps: int) -> dict[str, float]:
    """Return the ledger, whose parts sum to the wall time by construction: what is left over is `other`."""
    alone, exchanged, from_pipeline = (
        np.array([row[kind] for row in rounds]) for kind in ("alone", "exchanged", "from_pipeline")
    )
    parts = {
        "compute": steps * float(np.median(alone)),
        "communication": steps * float(np.median(exchanged - alone)),
        "input": steps * float(np.median(from_pipeline - exchanged)),
    }
    parts["other"] = wall - sum(parts.values())
    return {ledger_columns.column(name): value for name, value in (parts | {"wall": wall}).items()}
