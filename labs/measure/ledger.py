"""Time ledger of an epoch: input + compute + communication + start + other = wall time.

Nothing is timed inside a step, where work overlaps and a clock would disturb it.
The entries are differences between whole steps that differ in one thing:

    compute        a step on a batch in memory that exchanges no gradients
    communication  the extra time when gradients are exchanged,
                   including the wait for the slowest worker
    input          the extra time when the batches come from the input pipeline
    start          the extra time of a whole epoch that has only one step:
                   Keras' `fit`, a new pipeline, its first batch
    other          the rest of the epoch: callbacks between steps, a machine that
                   has changed its speed, measurement error
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from labs.datasets.pipeline import AHEAD, Augment, train_batches
from labs.datasets.sharding import shard
from labs.datasets.splits import Subset
from labs.measure import ledger_columns
from labs.run import heartbeat
from labs.training import hvd_ops
from labs.training.callbacks import Steps
from labs.training.keras_internals import take_steps
from labs.training.loop import local_copy
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
    seconds: float = 0.3,
    rounds: int = 5,
) -> tuple[dict[str, float], list[dict[str, float]]]:
    """Return the ledger of an epoch, in seconds, and the rounds behind it.

    A round has the seconds per step of each kind of step, and the seconds of an epoch of one step.

    Call it last: it trains the model further.

    Args:
        model: Trained by `fit`.
        train: Its training images; batch_size, loss, metrics and augment must be those of `fit`.
        history: From `fit`; the wall time is the median of its epochs after the first.
        seconds: Approximate time per kind of step and round.
        rounds: Number of rounds; the kinds take turns, so that a machine that slows down affects all alike.
    """
    wall, steps = _epoch(history)
    count = max(1, min(64, int(seconds / (wall / steps))))
    needed = 1 + (rounds + 1) * (AHEAD + 1 + count)
    batches = _epochs(job, train, batch_size, augment, range(len(history), len(history) + -(-needed // steps)))
    timers = _timers(model, batches, loss, metrics)
    timers["one_step_epoch"] = _epoch_timer(job, model, train, batch_size, augment, len(history))
    for timer in timers.values():
        timer(count)  # The first call traces the model.
    rows = []
    for number in range(rounds):
        first = number % len(timers)
        times = {kind: timers[kind](count) for kind in [*timers][first:] + [*timers][:first]}
        rows.append({"round": number + 1} | hvd_ops.mean_over_workers(times, 1.0))
    return _ledger(rows, wall, steps), rows


def _epoch(history: Sequence[dict[str, float]]) -> tuple[float, int]:
    """Return the median seconds of an epoch after the first, and its steps."""
    later = history[1:] or history
    return float(np.median([row["train_seconds"] for row in later])), int(later[-1]["steps"])


def _epochs(job: Job, train: Subset, batch_size: int, augment: Augment | None, epochs: range) -> tf.data.Dataset:
    """Return this worker's batches of several epochs in sequence."""
    seed = job.seed
    shards = (shard(train.positions, batch_size, job.rank, job.size, epoch, seed) for epoch in epochs)
    return functools.reduce(tf.data.Dataset.concatenate, (
        train_batches(train.images, train.labels, each, augment, epoch=each.epoch, seed=seed) for each in shards
    ))


def _timers(model: tf.keras.Model, batches: tf.data.Dataset, loss: str, metrics: Sequence[str]) -> dict[str, Callable]:
    """Return, by kind of step, a function that takes a number of steps and returns the seconds per step."""
    local = local_copy(model, loss, metrics)
    pipeline = iter(batches)
    memory = iter(tf.data.Dataset.from_tensors(next(pipeline)).repeat())

    def from_pipeline(count: int) -> float:
        take_steps(model, pipeline, AHEAD + 1)  # Its buffer has filled while the other kinds were timed.
        return _time(model, pipeline, count)

    return {"alone": lambda count: _time(local, memory, count),
            "exchanged": lambda count: _time(model, memory, count),
            "from_pipeline": from_pipeline}


def _epoch_timer(job: Job, model: tf.keras.Model, train: Subset, batch_size: int, augment: Augment | None,
                 epoch: int) -> Callable:
    """Return a function that trains the last step of an epoch as `fit` does, and returns the seconds of all of it."""
    numbers, heart = itertools.count(epoch), heartbeat.current()

    def one_step_epoch(_: int) -> float:
        mine = shard(train.positions, batch_size, job.rank, job.size, next(numbers), job.seed)
        callback = Steps(heart, mine.epoch + 1, mine.steps, 1, False, first=mine.steps - 1, begin=lambda: None,
                         after_step=lambda step: False)
        hvd_ops.barrier()
        began = time.perf_counter()
        model.fit(
            train_batches(train.images, train.labels, mine, augment, epoch=mine.epoch, seed=job.seed,
                          first_step=mine.steps - 1),
            steps_per_epoch=1, callbacks=[callback], shuffle=False, verbose=0,
        )
        seconds = time.perf_counter() - began
        heart.pause()  # The other kinds of step have no heartbeat.
        return seconds

    return one_step_epoch


def _time(model: tf.keras.Model, batches: Iterator, count: int) -> float:
    """Return the mean seconds of `count` steps, which all workers start at once."""
    hvd_ops.barrier()
    began = time.perf_counter()
    take_steps(model, batches, count)
    return (time.perf_counter() - began) / count


def _ledger(rounds: Sequence[dict[str, float]], wall: float, steps: int) -> dict[str, float]:
    """Return the ledger; its entries sum to the wall time by construction, since `other` is the rest."""
    entries = {name: float(np.median([each[name] for each in ledger_columns.by_round(rounds, steps)])) for name in
               ("compute", "communication", "input", "start")}
    entries["other"] = wall - sum(entries.values())
    return {ledger_columns.column(name): value for name, value in (entries | {"wall": wall}).items()}
