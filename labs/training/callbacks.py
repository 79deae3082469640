"""What happens between two steps: note the place, move the bar, choose how often to come back to Python."""

from __future__ import annotations

import os
import sys
import time

import tensorflow as tf
from tqdm import tqdm

from labs.training import watch

BETWEEN_CALLBACKS = 0.2
"""Seconds that may pass without a look at signals, bar and place: steps faster than that run several at a time."""
MOST_STEPS = 64


class Steps(tf.keras.callbacks.Callback):
    """Follows the steps of one epoch.

    Keras returns to Python after every `steps_per_execution` steps. For small models that return costs more than the
    step; so after a few steps that are timed alone, their number is set such that a return comes about every
    BETWEEN_CALLBACKS seconds. It changes no result, and the workers need not choose alike.

    Args:
        watched: This worker's watch.
        epoch: Number of the epoch, from 1.
        steps: Its steps.
        bar: Whether to draw a progress bar.
        pace: Whether to choose steps_per_execution; the model must be compiled with more than one.
    """

    def __init__(self, watched: watch.Watch, epoch: int, steps: int, bar: bool, pace: bool):
        super().__init__()
        self.watched, self.epoch, self.pace = watched, epoch, pace
        self.bar = tqdm(total=steps, desc=f"epoch {epoch}", unit="step", leave=False, disable=not bar, file=sys.stderr)
        self.step, self.since = 0, time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        done = batch + 1 - self.step
        self.step = batch + 1
        self.watched.step(self.epoch, self.step)
        self.bar.set_postfix_str(f"loss {logs['loss']:.4f}", refresh=False)
        self.bar.update(done)
        if self.pace and self.step >= 3:
            self._set_pace(done)
        self.since = time.perf_counter()

    def _set_pace(self, done: int) -> None:
        seconds_per_step = (time.perf_counter() - self.since) / done
        pace = max(1, min(MOST_STEPS, int(BETWEEN_CALLBACKS / seconds_per_step)))
        self.model._steps_per_execution.assign(pace)
        self.pace = False

    def on_train_end(self, logs=None):
        self.bar.close()


class StillMoving(tf.keras.callbacks.Callback):
    """Tells the watch that an evaluation moves."""

    def __init__(self, watched: watch.Watch):
        super().__init__()
        self.watched = watched

    def on_test_batch_end(self, batch, logs=None):
        self.watched.step(self.watched.place().epoch, self.watched.place().step)


def wants_bar(rank: int) -> bool:
    """Whether this worker draws a bar: rank 0 alone, on a terminal (which its launcher may hold for it)."""
    return rank == 0 and (sys.stderr.isatty() or os.environ.get("LABS_TERMINAL") == "1")
