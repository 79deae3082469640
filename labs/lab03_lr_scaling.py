"""Lab 3: what the learning rate has to do when the batch grows: scaling rules and warmup.

    labs run lab03_lr_scaling --workers 2
    sbatch --gpus-per-node=4 --ntasks-per-node=4 jobs/lab03_lr_scaling.sh --preset paper
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from labs.run.options import Options
from labs.run.worker import main


@dataclasses.dataclass(frozen=True)
class Config:
    """What a student may change in lab 3."""

    data: str = "embedded"
    """"embedded" (drawn pictures), "real" (after `labs data fetch cifar10`) or a folder with CIFAR-10's .bin files."""
    model: Literal["cifar_cnn", "resnet18"] = "cifar_cnn"
    """The network, from labs/models/cifar.py."""
    batch_size: int = 64
    """Images per worker and step."""
    epochs: int = 7
    """Passes over the training images."""
    base_lr: float = 0.001
    """Learning rate that is right for base_batch_size."""
    base_batch_size: int = 4
    """Images per step for which base_lr is right; the global batch is k times as large."""
    scaling: Literal["linear", "sqrt", "none"] = "linear"
    """How the learning rate grows with k."""
    warmup_epochs: float = 3
    """Epochs to climb from base_lr to the scaled rate; 0 begins with the scaled rate."""
    decay_epoch: float = 5
    """Epochs after which the rate falls to a tenth; 0: never."""
    optimizer: Literal["adam", "sgd"] = "adam"
    """What turns gradients into steps."""
    momentum: float = 0.9
    """Momentum of SGD."""
    validation_split: float = 0.2
    """Share of the training images held out for validation, per class."""
    augment: bool = False
    """Flip and shift the training images."""
    seed: int = 1
    """Of the split, the weights, the order and the augmentation."""


PRESETS = {
    "demo": Config(),
    # Report C4.1: 4 GPUs with batch 512 against one with 128, five epochs; k = 16.
    "paper": Config(
        data="real", model="resnet18", batch_size=512, epochs=5, base_lr=0.1, base_batch_size=128, warmup_epochs=2,
        decay_epoch=4, optimizer="sgd", validation_split=0.1, augment=True,
    ),
}

WORKERS = {"demo": 2, "paper": 4}
"""Workers on which the notebook runs each preset; the global batch, and with it k, follows."""


def learning_rate(config: Config, images: int, size: int):
    """Return the learning rate as a function of the step.

    Args:
        config: The experiment.
        images: Number of training images.
        size: Number of workers.
    """
    from labs.datasets.sharding import steps_per_epoch
    from labs.training import schedule

    # Horovod: a step trains on the images of all workers, and its rate must suit their number.
    k = config.batch_size * size / config.base_batch_size
    peak = schedule.scaled_lr(config.base_lr, k, config.scaling)
    steps = steps_per_epoch(images, config.batch_size, size)
    falls = (int(config.decay_epoch * steps),) if config.decay_epoch else ()
    return schedule.Warmup(config.base_lr, peak, int(config.warmup_epochs * steps), falls)


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Train with a scaled rate, judge on validation and test images, and return the run's record."""
    import tensorflow as tf

    from labs.datasets import arrays, fetch, splits
    from labs.datasets.augment import Augment
    from labs.models import cifar
    from labs.report import run_record
    from labs.training import workers
    from labs.training.loop import evaluate, fit

    with workers.start("lab03_lr_scaling", config, options) as job:
        cifar10 = arrays.read_cifar10(fetch.locate("cifar10", config.data))
        pictures = splits.from_arrays(cifar10, config.validation_split, config.seed)
        job.say(pictures.description)

        rate = learning_rate(config, len(pictures.train), job.size)
        after = f" in the first step, {rate.peak:.4g} after the warmup" if config.warmup_epochs else ""
        job.say(f"k = {config.batch_size * job.size} / {config.base_batch_size}, scaling {config.scaling}: "
                f"learning rate {float(rate(0)):.4g}{after}")
        model = getattr(cifar, config.model)(len(pictures.class_names))
        adam = config.optimizer == "adam"
        history = fit(
            job, model, tf.keras.optimizers.Adam(rate) if adam else tf.keras.optimizers.SGD(rate, config.momentum),
            pictures.train, pictures.validation,
            batch_size=config.batch_size, epochs=config.epochs, augment=Augment() if config.augment else None,
        )
        test = evaluate(job, model, pictures.test, config.batch_size)
        return run_record.finish(
            job, history, test_accuracy=test["accuracy"], test_loss=test["loss"],
            validation_images=len(pictures.validation),
        )


if __name__ == "__main__":
    main()
