"""Decides when a run saves: after each epoch, and between two steps if a save is due or the run must stop."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from labs.run import heartbeat, stop
from labs.training import checkpoint, hvd_ops
from labs.training.workers import Job


class Saver:
    """Saves a run after each epoch, and between two steps when `save_seconds` have passed or the run is asked to stop.

    Args:
        job: The run.
        model: The model that is trained.
        position: Where the run begins.
        identity: From `agreement.identity`.
    """

    def __init__(self, job: Job, model: tf.keras.Model, position: checkpoint.Position, identity: Mapping[str, Any]):
        self.job, self.model, self.position, self.identity = job, model, position, identity
        self.saved = time.perf_counter()
        self.began = _running_seconds()

    @property
    def seconds(self) -> float:
        """Seconds that the epoch has taken, including those before an interruption; a stop by Ctrl-Z does not count."""
        return _running_seconds() - self.began

    def begin_epoch(self) -> None:
        """Start the clock of an epoch."""
        heartbeat.current().begin_steps()
        self.began = _running_seconds() - self.position.seconds

    def restore_worker_state(self) -> None:
        """Restore this worker's own state from when the run was saved between two steps."""
        if self.position.step:
            values = self.position.worker_states[self.job.rank]
            for variable, value in zip(checkpoint.worker_state(self.model), values, strict=True):
                variable.assign(value)

    def after_step(self, step: int) -> bool:
        """Save after this step of the epoch if a save is due, and return whether the run must stop there."""
        due, stopping = self._due()
        if due or stopping:
            # Horovod: within an epoch only weights and optimizer are equal on all workers.
            mine = tuple(variable.numpy() for variable in checkpoint.worker_state(self.model))
            by_rank = tuple(hvd_ops.gather_object(mine))
            self._save(dataclasses.replace(self.position, step=step, seconds=self.seconds, worker_states=by_rank))
        return stopping

    def end_epoch(self, row: dict[str, float]) -> None:
        """Save after an epoch.

        Args:
            row: The epoch's row of the history.
        """
        self._save(checkpoint.Position(self.position.epoch + 1, (*self.position.history, row)))

    def stop_if_requested(self) -> None:
        """Stop after an epoch if the run was asked to.

        Raises:
            Stopped: It was.
        """
        if self._due()[1]:
            self.stop()

    def stop(self) -> None:
        """End the run, whose state is saved.

        Raises:
            Stopped: Always.
        """
        epoch, step = self.position.epoch, self.position.step
        reached = f"step {step} of epoch {epoch + 1}" if step else f"epoch {epoch}"
        self.job.print_once(f"stopped and saved after {reached}")
        # Horovod: only rank 0 saves. A worker that stops exits with code 130, and mpirun then kills all others: wait.
        hvd_ops.barrier()
        raise stop.Stopped(f"asked to stop, and saved after {reached}")

    def _due(self) -> tuple[bool, bool]:
        """Return whether to save and whether to stop, the same on all workers."""
        due = time.perf_counter() - self.saved > self.job.options.save_seconds
        # Horovod: a signal may reach one worker a step earlier, and clocks differ, so all workers decide together.
        by_rank = hvd_ops.gather_in_graph([due, stop.requested()])
        return bool(by_rank[0, 0]), bool(by_rank[:, 1].any())

    def _save(self, position: checkpoint.Position) -> None:
        self.position, self.saved = position, time.perf_counter()
        if self.job.rank == 0:  # Horovod: all workers hold the same weights; one of them writes them.
            checkpoint.save(self.job.folder / "checkpoints", self.model, position, self.job.config, self.identity)


def _running_seconds() -> float:
    return time.perf_counter() - heartbeat.current().stopped_seconds
