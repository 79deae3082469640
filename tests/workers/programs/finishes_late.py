"""A small lab whose rank 0 takes long to finish after the evaluation, as with large curves on a slow file system."""

from __future__ import annotations

import dataclasses
import time

from labs.run.catalogue import Lab
from labs.run.fields import BatchSize, Seed
from labs.run.options import Options
from labs.run.worker import main


@dataclasses.dataclass(frozen=True)
class Config:
    """What all workers must share."""

    batch_size: BatchSize = 4
    seed: Seed = 1


PRESETS = {"demo": Config()}


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Evaluate a model that was never trained, and take three times the stall limit to finish."""
    import numpy as np
    import tensorflow as tf

    from labs.datasets.splits import Subset
    from labs.results import run_record
    from labs.run import heartbeat
    from labs.training import workers
    from labs.training.loop import compile_for, evaluate

    with workers.start(config, options) as job:
        began = time.time()
        layers = tf.keras.layers
        model = tf.keras.Sequential([layers.Input((8, 8, 1), dtype="uint8"), layers.Rescaling(1 / 255),
                                     layers.Flatten(), layers.Dense(10, "softmax")])
        compile_for(model, tf.keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy", ("accuracy",))
        images = np.random.default_rng(0).integers(0, 256, (32, 8, 8, 1), np.uint8)
        test = evaluate(job, model, Subset(images, np.arange(32) % 10, np.arange(32)), config.batch_size)
        assert heartbeat.current().beat.moved > began, "the evaluation has armed the watch"
        if job.rank == 0:
            time.sleep(3 * options.stall_seconds)
        return run_record.finish(job, [], test_loss=test["loss"])


LAB = Lab(Config, PRESETS, run)

if __name__ == "__main__":
    main()
