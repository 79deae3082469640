"""TensorBoard logs of a run: the rows of its history, which hold the means over all workers."""

from __future__ import annotations

import shutil
from collections.abc import Iterable

import tensorflow as tf

from labs.run.paths import shown
from labs.training import keras_internals
from labs.training.workers import Job

FOLDER = "tensorboard"


def begin(job: Job, model: tf.keras.Model, history: Iterable[dict[str, float]]) -> TensorBoard | None:
    """Return this run's TensorBoard, on rank 0 and with `--tensorboard`; arguments as of `TensorBoard`."""
    # Horovod: all workers have the same history; one of them writes it.
    return TensorBoard(job, model, history) if job.options.tensorboard and job.rank == 0 else None


class TensorBoard(keras_internals.HistoryBoard):
    """Keras' callback, which gets the rows of the history from `fit`: by itself it would log one worker's metrics.

    The logs always equal the history: those of an interrupted run are rewritten.

    Args:
        job: The run.
        model: The model that is trained.
        history: The run's rows so far.
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
        """Log a row of the history, and write it at once."""
        self.on_epoch_end(row["epoch"], {name: row[name] for name in row if name not in ("epoch", "steps", "images")})
        self.flush()
