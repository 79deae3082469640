"""Lab 10: Caltech256 with a validation split, on several workers.

    labs run lab10_caltech --workers 2
    sbatch jobs/lab10_caltech.sh --preset paper
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from labs.run.options import Options
from labs.run.worker import main


@dataclasses.dataclass(frozen=True)
class Config:
    """What a student may change in lab 10."""

    data: str = "embedded"
    """"embedded" (drawn pictures), "real" (after `labs data fetch caltech256`) or a folder with a folder per class."""
    image_size: int = 48
    """Side of the pictures that the network sees, in pixels."""
    batch_size: int = 16
    """Images per worker and step."""
    epochs: int = 10
    """Passes over the training images."""
    base_lr: float = 0.03
    """Learning rate of one worker, before scaling."""
    scaling: Literal["linear", "sqrt", "none"] = "linear"
    """How the learning rate grows with the number of workers."""
    warmup_epochs: float = 2
    """Epochs to climb from base_lr to the scaled rate."""
    momentum: float = 0.9
    """Momentum of SGD."""
    test_split: float = 0.2
    """Share of all images held out for the test, per class."""
    validation_split: float = 0.2
    """Share of the other images held out for validation, per class."""
    augment: bool = True
    """Flip and shift the training images."""
    norm: Literal["batch", "group"] = "batch"
    """Normalize over each worker's own batch, or each image by itself: then how a batch is shared changes nothing."""
    seed: int = 1
    """Of the split, the weights, the order and the augmentation."""


PRESETS = {
    "demo": Config(),
    "paper": Config(data="real", image_size=128, batch_size=32, epochs=40, base_lr=0.0125, warmup_epochs=5),
}


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Train on this worker's share, judge on validation and test images, and return the run's record."""
    # TensorFlow loads here, not above: `labs list` and `--help` answer at once.
    import tensorflow as tf

    from labs.datasets import fetch, splits
    from labs.datasets.augment import Augment
    from labs.models import cnn
    from labs.report import run_record
    from labs.training import schedule, workers
    from labs.training.loop import evaluate, fit, steps_per_epoch

    with workers.start("lab10_caltech", config, options) as job:
        root = fetch.locate("caltech256", config.data)
        photos = splits.from_folder(root, config.image_size, config.test_split, config.validation_split, config.seed)
        job.say(photos.description)

        # Horovod: `size` workers make one step on `size` times the images, so each step may be as much longer.
        peak = schedule.scaled_lr(config.base_lr, job.size, config.scaling)
        steps = steps_per_epoch(len(photos.train), config.batch_size, job.size)
        rate = schedule.Warmup(config.base_lr, peak, int(config.warmup_epochs * steps))

        model = cnn.photo_cnn(config.image_size, len(photos.class_names), norm=config.norm)
        history = fit(
            job, model, tf.keras.optimizers.SGD(rate, config.momentum), photos.train, photos.validation,
            batch_size=config.batch_size, epochs=config.epochs,
            augment=Augment() if config.augment else None,
        )
        test = evaluate(job, model, photos.test, config.batch_size)
        return run_record.finish(job, history, test_accuracy=test["accuracy"], test_loss=test["loss"])


if __name__ == "__main__":
    main()
