"""When a run saves: after each epoch, and between two steps where that is asked for."""

from __future__ import annotations

import dataclasses
import time

import tensorflow as tf

from labs.run import stop
from labs.training import checkpoint, hvd_ops
from labs.training.workers import Job


class Saver:
    """Saves a run after each epoch, and between two steps when time has passed or the run is asked to stop.

    Args:
        job: The run.
        model: What is trained.
        position: Where the run begins.
    """

    def __init__(self, job: Job, model: tf.keras.Model, position: checkpoint.Position):
        self.job, self.model, self.position = job, model, position
        self.began = self.saved = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds that the epoch has taken, with those before the run was saved between its steps."""
        return time.perf_counter() - self.began

    def begin_epoch(self) -> None:
        """Start the clock of an epoch."""
        self.began = time.perf_counter() - self.position.seconds

    def take_up(self) -> None:
        """Take up what was this worker's own when the run was saved between two steps."""
        if self.position.step:
            for variable, value in zip(checkpoint.worker_state(self.model), self.position.own[self.job.rank], strict=True):
                variable.assign(value)

    def between(self, step: int) -> bool:
        """Save if it is due after this step of the epoch, and return whether the run is to stop there."""
        due, stopping = self._asked()
        if due or stopping:
            # Horovod: within an epoch the workers share weights and optimizer, and nothing else.
            own = hvd_ops.gather_object(tuple(variable.numpy() for variable in checkpoint.worker_state(self.model)))
            self._save(dataclasses.replace(self.position, step=step, seconds=self.seconds, own=tuple(own)))
        return stopping

    def end_epoch(self, row: dict[str, float]) -> None:
        """Save after an epoch."""
        self._save(checkpoint.Position(self.position.epoch + 1, (*self.position.history, row)))

    def stop_if_asked(self) -> None:
        """Stop after an epoch."""
        if self._asked()[1]:
            self.stop()

    def stop(self) -> None:
        """Leave, when all is saved.

        Raises:
            Stopped: Always.
        """
        place = self.position
        told = f"step {place.step} of epoch {place.epoch + 1}" if place.step else f"epoch {place.epoch}"
        self.job.say(f"stopped and saved after {told}")
        raise stop.Stopped(f"asked to stop, and saved after {told}")

    def _asked(self) -> tuple[bool, bool]:
        """Return whether to save, and whether to stop."""
        due = time.perf_counter() - self.saved > self.job.options.save_seconds
        # Horovod: a signal may reach one worker a step earlier, and clocks differ, so all workers decide together.
        everyone = hvd_ops.gather_in_graph([due, stop.requested()])
        return bool(everyone[0, 0]), bool(everyone[:, 1].any())

    def _save(self, position: checkpoint.Position) -> None:
        self.position, self.saved = position, time.perf_counter()
        if self.job.rank == 0:  # Horovod: all workers hold the same weights; one of them writes them.
            checkpoint.save(self.job.folder / "checkpoints", self.model, position, self.job.config)
