"""Training callbacks: heartbeat, progress bar, the number of steps that Keras takes per call."""

from __future__ import annotations

import time
from collections.abc import Callable

import tensorflow as tf
from tqdm import tqdm

from labs.run import terminal
from labs.run.heartbeat import Monitor
from labs.training import hvd_ops, keras_internals

BETWEEN_CALLBACKS = 0.2
"""Seconds between two checks of signals, progress bar and heartbeat. If a step is shorter, a call takes several."""
MOST_STEPS = 64


class Steps(tf.keras.callbacks.Callback):
    """Follows the steps of one epoch.

    Keras returns to Python after every `steps_per_execution` steps. For small models that return costs more than the
    step. So the first few steps are timed one by one, and then their number is set so that Keras returns about every
    BETWEEN_CALLBACKS seconds. This changes no result. But all workers must use the same number: they return after the
    same steps, and `after_step` may communicate.

    Args:
        epoch: Number of the epoch, from 1.
        micro_batches: Passes of the model that make one step; Keras calls each of them a step.
        bar: Whether to show a progress bar, if there is a terminal.
        first: Steps of the epoch that were taken before, by the run that this one resumes.
        begin: Called once before the first step, when Keras has reset all metrics.
        after_step: Called with the steps taken, on all workers after the same ones, but not after the last; True ends
            epoch there.
    """

    def __init__(self, heart: Monitor, epoch: int, steps: int, micro_batches: int, bar: bool, *, first: int,
                 begin: Callable[[], None], after_step: Callable[[int], bool]):
        super().__init__()
        self.heart, self.epoch, self.steps, self.micro_batches, self.first = heart, epoch, steps, micro_batches, first
        self.begin, self.after_step, self.stopped = begin, after_step, False
        self.pace, self.paced = 1, steps - first <= 8
        self.columns = bar and terminal.columns()
        self.step, self.since = first, time.perf_counter()
        self.began = self.since

    def on_train_begin(self, logs=None):
        keras_internals.start_counting(self.model)
        self._set_steps()

    def on_epoch_begin(self, epoch, logs=None):
        self.begin()

    def on_train_batch_end(self, batch, logs=None):
        step = self.first + keras_internals.steps_taken(self.model) // self.micro_batches
        done, self.step = step - self.step, step
        self.heart.step(self.epoch, step, hvd_ops.seconds_waited(self.model.optimizer))
        self._show(logs["loss"])
        if not self.paced and step - self.first >= 3:
            self._set_pace(done)
        self.stopped = step < self.steps and self.after_step(step)
        if self.stopped or step == self.steps:
            self.model.stop_training = True
        else:
            self._set_steps()
        self.since = time.perf_counter()

    def _set_pace(self, done: int) -> None:
        seconds_per_step = (time.perf_counter() - self.since) / done
        pace = max(1, min(MOST_STEPS, int(BETWEEN_CALLBACKS / seconds_per_step)))
        # Horovod: workers that return after different steps would wait for each other forever.
        self.pace = int(hvd_ops.gather_in_graph([pace]).min())
        self.paced = True

    def _set_steps(self) -> None:
        """Set the steps of the next call: no more than the epoch has left."""
        steps = min(self.pace, self.steps - self.step)
        keras_internals.set_steps_per_execution(self.model, self.micro_batches * steps)

    def _show(self, loss: float) -> None:
        if self.columns:
            terminal.show_progress(tqdm.format_meter(
                self.step, self.steps, time.perf_counter() - self.began, self.columns - 1, f"epoch {self.epoch}",
                unit="step", postfix=f"loss {loss:.4f}", initial=self.first))

    def on_train_end(self, logs=None):
        terminal.show_progress("")


class EvaluationSteps(tf.keras.callbacks.Callback):
    """Keeps this worker's heartbeat going during an evaluation."""

    def __init__(self, heart: Monitor):
        super().__init__()
        self.heart = heart

    def on_test_batch_end(self, batch, logs=None):
        self.heart.still_moving()
