"""A small lab with dropout, whose record has the checksum of every weight: equal runs have equal ones."""

import dataclasses

from labs.run.catalogue import Lab
from labs.run.fields import BatchSize, Options, Seed
from labs.run.worker import main


@dataclasses.dataclass(frozen=True)
class Config:
    """What all workers must share."""

    batch_size: BatchSize = 8
    epochs: int = 2
    seed: Seed = 1


PRESETS = {"demo": Config()}


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Train, and return the record."""
    import numpy as np
    import tensorflow as tf

    from labs.datasets.splits import Subset
    from labs.results import run_record
    from labs.training import agreement, workers
    from labs.training.loop import fit

    with workers.start(config, options) as job:
        images = np.random.default_rng(0).integers(0, 256, (150, 8, 8, 1), np.uint8)
        layers = tf.keras.layers
        model = tf.keras.Sequential([layers.Input((8, 8, 1), dtype="uint8"), layers.Rescaling(1 / 255),
                                     layers.Flatten(), layers.Dense(32, activation="relu"), layers.Dropout(0.5),
                                     layers.Dense(10, activation="softmax")])
        job.print_once("training begins")
        history = fit(job, model, tf.keras.optimizers.Adam(0.01), Subset(images, np.arange(150) % 10, np.arange(150)),
                      batch_size=config.batch_size, epochs=config.epochs)
        return run_record.finish(job, history, tables={"checksums": [agreement.checksums(model)]})


LAB = Lab(Config, PRESETS, run)

if __name__ == "__main__":
    main()
