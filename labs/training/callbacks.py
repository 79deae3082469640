"""What happens between two steps: note the place, move the bar, choose how often to come back to Python."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import tensorflow as tf
from tqdm import tqdm

from labs.run import heartbeat
from labs.training import hvd_ops

BETWEEN_CALLBACKS = 0.2
"""Seconds that may pass without a look at signals, bar and place: steps faster than that run several at a time."""
MOST_STEPS = 64


class Steps(tf.keras.callbacks.Callback):
    """Follows the steps of one epoch.

    Keras returns to Python after every `steps_per_execution` steps. For small models that return costs more than the
    step; so after a few steps that are timed alone, their number is set such that a return comes about every
    BETWEEN_CALLBACKS seconds. It changes no result; but the workers choose alike, so that they return after the same
    steps, and `between` may exchange what they have to say.

    Args:
        watched: This worker's watch.
        epoch: Number of the epoch, from 1.
        steps: Its steps.
        pieces: Passes of the model that make one step: what Keras calls a step.
        bar: Whether to draw a progress bar.
        first: Steps of the epoch that were taken before, by the run that this one goes on from.
        begin: Called once before the first step, when Keras has set all metrics to zero.
        between: Called with the steps taken, on all workers after the same ones, but not after the last; True ends the
            epoch there.
    """

    def __init__(self, watched: heartbeat.Heartbeat, epoch: int, steps: int, pieces: int, bar: bool, *, first: int,
                 begin: Callable[[], None], between: Callable[[int], bool]):
        super().__init__()
        self.watched, self.epoch, self.steps, self.pieces, self.first = watched, epoch, steps, pieces, first
        self.begin, self.between, self.stopped = begin, between, False
        self.paced = steps - first <= 8
        self.bar = tqdm(total=steps, initial=first, desc=f"epoch {epoch}", unit="step", leave=False, disable=not bar,
                        file=sys.stderr)
        self.step, self.since = first, time.perf_counter()

    def on_train_begin(self, logs=None):
        self.model._steps_per_execution.assign(self.pieces)

    def on_epoch_begin(self, epoch, logs=None):
        self.begin()

    def on_train_batch_end(self, batch, logs=None):
        step = self.first + (batch + 1) // self.pieces
        done, self.step = step - self.step, step
        self.watched.step(self.epoch, step)
        self.bar.set_postfix_str(f"loss {logs['loss']:.4f}", refresh=False)
        self.bar.update(done)
        if not self.paced and step - self.first >= 3:
            self._set_pace(done)
        if step < self.steps and self.between(step):
            self.model.stop_training = self.stopped = True
        self.since = time.perf_counter()

    def _set_pace(self, done: int) -> None:
        seconds_per_step = (time.perf_counter() - self.since) / done
        pace = max(1, min(MOST_STEPS, int(BETWEEN_CALLBACKS / seconds_per_step)))
        # Horovod: workers that return after other steps would have nobody there to exchange anything with.
        self.model._steps_per_execution.assign(self.pieces * int(hvd_ops.gather_in_graph([pace]).min()))
        self.paced = True

    def on_train_end(self, logs=None):
        self.bar.close()


class EvaluationSteps(tf.keras.callbacks.Callback):
    """Tells the watch that an evaluation moves."""

    def __init__(self, watched: heartbeat.Heartbeat):
        super().__init__()
        self.watched = watched

    def on_test_batch_end(self, batch, logs=None):
        self.watched.still_moving()


def shows_bar(rank: int) -> bool:
    """Whether this worker draws a bar: rank 0 alone, on a terminal (which its launcher may hold for it)."""
    return rank == 0 and (sys.stderr.isatty() or os.environ.get("LABS_TERMINAL") == "1")
