"""TensorBoard logs of a run: the rows of its history, which hold the means over all workers."""

from __future__ import annotations

import shutil
from collections.abc import Iterable

import tensorflow as tf

from labs.run.paths import shown
from labs.training.workers import Job

FOLDER = "tensorboard"


class TensorBoard:
    """Logs a run's history under the names of Keras' TensorBoard callback, which would log one worker's metrics.

    The logs always equal the history: those of an interrupted run are rewritten.

    Args:
        job: The run.
        history: The run's rows so far.
    """

    def __init__(self, job: Job, history: Iterable[dict[str, float]]):
        self.folder = job.folder / FOLDER
        self.writers: dict[str, tf.summary.SummaryWriter] = {}
        shutil.rmtree(self.folder, ignore_errors=True)
        for row in history:
            self.add(row)
        job.print_once(f"TensorBoard: tensorboard --logdir {shown(self.folder)}")

    def add(self, row: dict[str, float]) -> None:
        """Log a row of the history, and write it at once."""
        for name in sorted(row.keys() - {"epoch", "steps", "images"}):
            subset = "validation" if name.startswith("val_") else "train"
            if subset not in self.writers:
                self.writers[subset] = tf.summary.create_file_writer(str(self.folder / subset))
            with self.writers[subset].as_default():
                tf.summary.scalar(f"epoch_{name.removeprefix('val_')}", row[name], step=int(row["epoch"]))
        for writer in self.writers.values():
            writer.flush()
