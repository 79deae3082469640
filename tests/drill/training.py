"""What the drill kills: two workers' training of a second or two, with all that a resumed run has to bring back.

It stands among the labs as far as the launcher is concerned: `python -m tests.drill.training` is one worker of it.
"""

from __future__ import annotations

import dataclasses

from labs.run.catalogue import Lab
from labs.run.fields import BatchSize, Seed, Threads
from labs.run.options import Options
from labs.run.worker import main

SIDE, CLASSES = 16, 10


@dataclasses.dataclass(frozen=True)
class Config:
    """One training."""

    seed: Seed = 1
    """Of the pictures, the weights, the order, the augmentation and dropout."""
    epochs: int = 16
    """Passes over the training images."""
    batch_size: BatchSize = 16
    """Images per worker and step."""
    threads: Threads = 1
    """TensorFlow's threads of one worker: sums are taken in one order only if one thread takes them."""


PRESETS = {"demo": Config()}
IMAGES, STEPS = 180, 6
"""The last of these steps holds fewer images than the others."""


def pictures(seed: int):
    """Return random pictures to train on."""
    import numpy as np

    from labs.datasets.splits import Subset

    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (IMAGES, SIDE, SIDE, 3), dtype=np.uint8)
    return Subset(images, random.integers(0, CLASSES, IMAGES), np.arange(IMAGES))


def network():
    """Return a network with batch norm and dropout, whose checkpoint of 12 MB takes a while to be written."""
    import tensorflow as tf

    layers = tf.keras.layers
    return tf.keras.Sequential([
        layers.Input((SIDE, SIDE, 3), dtype="uint8"), layers.Rescaling(1 / 127.5, offset=-1),
        layers.Conv2D(32, 3, strides=2, activation="relu"), layers.BatchNormalization(momentum=0.9),
        layers.Flatten(), layers.Dropout(0.5), layers.Dense(640, activation="relu"),
        layers.Dense(CLASSES, activation="softmax"),
    ])


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Train on this worker's share, and return the run's record."""
    import tensorflow as tf

    from labs.datasets.augment import Augment
    from labs.results import records
    from labs.training import schedule, workers
    from labs.training.loop import fit

    with workers.start(config, options) as job:
        optimizer = tf.keras.optimizers.Adam(schedule.Warmup(0.0005, 0.001, 3 * STEPS))
        history = fit(job, network(), optimizer, pictures(config.seed),
                      batch_size=config.batch_size, epochs=config.epochs, augment=Augment())
        return records.finish(job, history)


LAB = Lab(Config, PRESETS, run)

if __name__ == "__main__":
    main()
