"""TensorBoard's logs of a run: Keras' own callback, told the history, which holds the means over all workers."""

from __future__ import annotations

import shutil
from collections.abc import Iterable

import tensorflow as tf

from labs.run.paths import shown
from labs.training.workers import Job

FOLDER = "tensorboard"


def begin(job: Job, model: tf.keras.Model, history: Iterable[dict[str, float]]) -> TensorBoard | None:
    """Return what logs this run, if that was asked for and is this worker's part; arguments as of `TensorBoard`."""
    # Horovod: all workers hold one history; one of them writes it.
    return TensorBoard(job, model, history) if job.options.tensorboard and job.rank == 0 else None


class TensorBoard(tf.keras.callbacks.TensorBoard):
    """Keras' callback, which `fit` tells each row of its history: Keras itself would log this worker's own metrics.

    The logs always say what the history says: those of an interrupted run are written anew.

    Args:
        job: The run.
        model: What is trained.
        history: Its rows so far.
    """

    def __init__(self, job: Job, model: tf.keras.Model, history: Iterable[dict[str, float]]):
        folder = job.folder / FOLDER
        shutil.rmtree(folder, ignore_errors=True)
        super().__init__(folder, write_graph=False)
        self.set_model(model)
        for row in history:
            self.add(row)
        job.say(f"TensorBoard: tensorboard --logdir {shown(folder)}")

    def add(self, row: dict[str, float]) -> None:
        """Log a row of the history, so that it can be seen at once."""
        self.on_epoch_end(row["epoch"], {name: row[name] for name in row if name not in ("epoch", "steps", "images")})
        for writer in self._writers.values():
            writer.flush()

    def _collect_learning_rate(self, logs: dict[str, float]) -> dict[str, float]:
        return logs  # Each row has its own; Keras would put the optimizer's present one into earlier rows.
