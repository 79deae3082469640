"""A training in which rank 1 sleeps in each step before it computes: `slow_rank.py RESULTS EPOCHS`."""

import dataclasses
import sys
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

from labs.datasets.splits import Subset
from labs.results import run_record
from labs.run.fields import Options
from labs.training import workers
from labs.training.loop import fit

SLEEP = 0.03


@dataclasses.dataclass(frozen=True)
class Config:
    batch_size: int = 8
    seed: int = 1


def main(root: str, epochs: str) -> None:
    options = Options(name="slow", results=Path(root))
    with workers.start(Config(), options) as job:
        images = np.zeros((320, 4, 4, 1), np.uint8)
        model = tf.keras.Sequential([tf.keras.layers.Input((4, 4, 1)), tf.keras.layers.Flatten(),
                                     tf.keras.layers.Dense(2, activation="softmax")])
        step = model.train_step

        def sleep_first(batch):
            with tf.control_dependencies([tf.py_function(lambda: time.sleep(SLEEP * job.rank), [], [])]):
                return step(tf.nest.map_structure(tf.identity, batch))

        model.train_step = sleep_first
        history = fit(job, model, tf.keras.optimizers.SGD(0.1), Subset(images, np.zeros(320, int), np.arange(320)),
                      batch_size=8, epochs=int(epochs))
        run_record.finish(job, history)


if __name__ == "__main__":
    main(*sys.argv[1:])
