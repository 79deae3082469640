"""Training callbacks: heartbeat, progress bar, the number of steps that Keras takes per call."""

import time
from collections.abc import Callable

import tensorflow as tf
from tqdm import tqdm

from labs.run import terminal
from labs.run.heartbeat import Monitor
from labs.training import hvd_ops

BETWEEN_CALLBACKS = 0.2
"""Seconds between two checks of signals, progress bar and heartbeat. If a step is shorter, a call takes several."""
MOST_STEPS = 64


class Steps(tf.keras.callbacks.Callback):
    """Follows the steps of one epoch.

    Keras returns to Python after each call of its train function. For small models that return costs more than a step.
    So the first few steps are timed one by one, and then their number is set so that Keras returns about every
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

    def __init__(self, monitor: Monitor, epoch: int, steps: int, micro_batches: int, bar: bool, *, first: int,
                 begin: Callable[[], None], after_step: Callable[[int], bool]):
        super().__init__()
        self.monitor, self.epoch, self.steps, self.first = monitor, epoch, steps, first
        self.micro_batches, self.begin, self.after_step = micro_batches, begin, after_step
        self.stopped, self.pace, self.is_paced = False, 1, steps - first <= 8
        self.columns = bar and terminal.columns()
        self.step, self.began = first, time.perf_counter()
        self.call_began = self.began

    def on_train_begin(self, logs=None):
        self.model.train_function.taken = 0
        self._plan_call()

    def on_epoch_begin(self, epoch, logs=None):
        self.begin()

    def on_train_batch_end(self, batch, logs=None):
        before, self.step = self.step, self.first + self.model.train_function.taken // self.micro_batches
        self.monitor.step(self.epoch, self.step, hvd_ops.seconds_waited(self.model.optimizer))
        self._show(logs["loss"])
        if not self.is_paced and self.step - self.first >= 3:
            self._set_pace(self.step - before)
        self.stopped = self.step < self.steps and self.after_step(self.step)
        if self.stopped or self.step == self.steps:
            self.model.stop_training = True
        else:
            self._plan_call()

    def _set_pace(self, taken: int) -> None:
        pace = max(1, min(MOST_STEPS, int(BETWEEN_CALLBACKS * taken / (time.perf_counter() - self.call_began))))
        # Horovod: workers that return after different steps would wait for each other forever.
        self.pace = int(hvd_ops.gather([pace], "asked").min())
        self.is_paced = True

    def _plan_call(self) -> None:
        """Set the steps of the next call: no more than the epoch has left."""
        self.model.train_function.steps = self.micro_batches * min(self.pace, self.steps - self.step)
        self.call_began = time.perf_counter()

    def _show(self, loss: float) -> None:
        if self.columns:
            terminal.show_progress(tqdm.format_meter(
                self.step, self.steps, time.perf_counter() - self.began, self.columns - 1, f"epoch {self.epoch}",
                unit="step", postfix=f"loss {loss:.4f}", initial=self.first))

    def on_train_end(self, logs=None):
        terminal.show_progress("")
