"""Lab 10: Caltech256 with a validation split, on several workers.

    labs run lab10_caltech --workers 2
    labs sweep lab10_caltech
    sbatch jobs/lab10_caltech.sh --preset paper
"""

import dataclasses
from typing import Literal

from labs import Lab, Options, Sweep, datasets, divide, fields, main, models, results, training


@dataclasses.dataclass(frozen=True)
class Config:
    """What a student may change in lab 10."""

    data: fields.Caltech256 = "embedded"
    image_size: fields.ImageSize = 48
    batch_size: fields.BatchSize = 16
    epochs: fields.Epochs = 10
    base_lr: fields.LearningRate = 0.03
    scaling: fields.Scaling = "linear"
    warmup_epochs: fields.WarmupEpochs = 2
    momentum: fields.Momentum = 0.9
    test_split: fields.TestShare = 0.2
    validation_split: fields.Share = 0.2
    augment: bool = True
    """Flip and shift the training images."""
    norm: Literal["batch", "group"] = "batch"
    """Normalize over each worker's batch, or over each image ("group"), independently of the number of workers."""
    seed: fields.Seed = 1


PRESETS = {
    "demo": Config(),
    "paper": Config(data="real", image_size=128, batch_size=32, epochs=40, base_lr=0.0125, warmup_epochs=5),
}

WORKERS = "F3: curves, accuracy and time of 1, 2 and 4 workers with one global batch"
VALIDATION = "F3: what a validation split costs in time and in images"
SAME = {"norm": ("group",), "scaling": ("none",)}
"""With these, workers that share a batch compute what one worker computes."""
SWEEPS = {
    name: (Sweep("workers", WORKERS, SAME, (1, 2, 4), adapt=divide),
           Sweep("validation", VALIDATION, {"validation_split": (0.0, 0.1, 0.2, 0.4), **SAME}, (1,)))
    for name in PRESETS
}


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Train on this worker's shard, evaluate on validation and test images, and return the run's record."""
    # TensorFlow is imported here and not above, so that `labs` and `--help` load no TensorFlow.
    import tensorflow as tf

    with training.start(config, options) as job:
        root = datasets.locate("caltech256", config.data)
        photos = datasets.from_folder(root, config.image_size, config.test_split, config.validation_split, config.seed)
        job.print_once(photos.description)

        # Horovod: a step of `size` workers trains on `size` times as many images, so the learning rate may grow.
        peak = training.scaled_lr(config.base_lr, job.size, config.scaling)
        steps = datasets.steps_per_epoch(len(photos.train), config.batch_size, job.size)
        schedule = training.Warmup(config.base_lr, peak, int(config.warmup_epochs * steps))

        model = models.photo_cnn(config.image_size, len(photos.class_names), norm=config.norm)
        history = training.fit(
            job, model, tf.keras.optimizers.SGD(schedule, config.momentum), photos.train, photos.validation,
            batch_size=config.batch_size, epochs=config.epochs,
            augment=datasets.Augment() if config.augment else None,
        )
        test = training.evaluate(job, model, photos.test, config.batch_size)
        tables = training.keep_model(job, model, photos, config.batch_size, per_image=True)
        return results.finish(job, history, tables=tables, test_accuracy=test["accuracy"], test_loss=test["loss"])


LAB = Lab(Config, PRESETS, run, SWEEPS, data_set="caltech256")

if __name__ == "__main__":
    main()
