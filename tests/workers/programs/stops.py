"""Train on random pictures; in the middle of the second epoch one worker may be asked to stop, or killed."""

import dataclasses
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

from labs.datasets.augment import Augment
from labs.datasets.splits import Subset
from labs.results import records
from labs.run import heartbeat
from labs.run.fields import BatchSize, Seed
from labs.run.options import Options
from labs.training import callbacks, workers
from labs.training.loop import fit

callbacks.MOST_STEPS = 2  # Come back to Python often, though the steps are fast.
SIGNALS = {"stopped": signal.SIGUSR1, "killed": signal.SIGKILL}


@dataclasses.dataclass(frozen=True)
class Config:
    batch_size: BatchSize = 8
    seed: Seed = 5


def network() -> tf.keras.Model:
    layers = tf.keras.layers
    return tf.keras.Sequential([
        layers.Input((12, 12, 3), dtype="uint8"), layers.Rescaling(1 / 255), layers.Conv2D(8, 3),
        layers.BatchNormalization(), layers.ReLU(), layers.Flatten(), layers.Dropout(0.3),
        layers.Dense(5, activation="softmax"),
    ])


def end_in_the_middle(which: signal.Signals) -> None:
    while (beat := heartbeat.current().heartbeat).epoch < 2 or beat.step < 9:
        time.sleep(0.001)
    os.kill(os.getpid(), which)


def main(results: Path, name: str, end: str) -> None:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (603, 12, 12, 3), dtype=np.uint8)
    train = Subset(images, images.mean((1, 2, 3)).astype(np.int64) % 5, np.arange(603))
    often = 0.001 if end == "killed" else 600.0  # At every return, however fast the steps are.
    options = Options(name=name, results=results, resume=end == "resumed", save_seconds=often)
    with workers.start(Config(), options) as job:
        if job.rank == 1 and end in SIGNALS:
            threading.Thread(target=end_in_the_middle, args=[SIGNALS[end]], daemon=True).start()
        model = network()
        history = fit(job, model, tf.keras.optimizers.Adam(0.01), train, batch_size=8, epochs=3, augment=Augment(),
                      backward_passes_per_step=2)
        records.finish(job, history)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
