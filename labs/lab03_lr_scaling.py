"""Lab 3: how the learning rate should change when the batch grows: scaling rules and warmup.

    labs run lab03_lr_scaling --workers 2
    labs sweep lab03_lr_scaling --preset laptop --oversubscribe
    sbatch --gpus-per-node=4 --ntasks-per-node=4 jobs/lab03_lr_scaling.sh --preset paper
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from labs import Lab, Options, Sweep, datasets, fields, main, models, results, training


@dataclasses.dataclass(frozen=True)
class Config:
    """What a student may change in lab 3."""

    data: str = "embedded"
    """"embedded" (synthetic images), "real" (after `labs data fetch cifar10`) or a folder with its .bin files."""
    model: Literal["cifar_cnn", "cifar_cnn_bn", "resnet18"] = "cifar_cnn"
    """The network, from labs/models/cifar.py."""
    images: fields.ImageCount = 0
    """Training images to use, of which the validation images are a share; 0: all."""
    batch_size: fields.BatchSize = 64
    """Images per worker and step."""
    epochs: fields.Epochs = 7
    """Passes over the training images."""
    base_lr: fields.LearningRate = 0.001
    """Learning rate for base_batch_size images per step."""
    base_batch_size: fields.BatchSize = 4
    """Images per step that base_lr is for; the global batch is k times as large."""
    scaling: fields.Scaling = "linear"
    """How the learning rate grows with k."""
    warmup_epochs: fields.WarmupEpochs = 3
    """Epochs in which the learning rate rises from base_lr to its scaled value; 0: it starts there."""
    decay_epoch: Annotated[float, fields.Range(0, 2**20)] = 5
    """Epochs after which the learning rate is divided by ten; 0: never."""
    optimizer: Literal["adam", "sgd"] = "adam"
    """The optimizer."""
    momentum: fields.Momentum = 0.9
    """Momentum of SGD."""
    validation_split: fields.Share = 0.2
    """Share of the training images held out for validation, per class."""
    augment: bool = False
    """Flip and shift the training images."""
    seed: fields.Seed = 1
    """Seed of the split, the weights, the order of the images, and the augmentation."""


PRESETS = {
    "demo": Config(),
    # Report C4.1: 4 GPUs with batch 512 against one with 128, five epochs; k = 16.
    "paper": Config(
        data="real", model="resnet18", batch_size=512, epochs=5, base_lr=0.1, base_batch_size=128, warmup_epochs=2,
        decay_epoch=4, optimizer="sgd", validation_split=0.1, augment=True,
    ),
    # The same experiment on two cores, with fewer images and a small network: ResNet-18 takes hours.
    "laptop": Config(
        data="real", model="cifar_cnn_bn", images=30_000, batch_size=512, epochs=5, base_lr=0.03, base_batch_size=128,
        warmup_epochs=2, decay_epoch=4, optimizer="sgd", validation_split=0.1,
    ),
}

C4_1 = "C4.1: loss and accuracy after five epochs, one worker with batch 128 against four with 512 each"


def _small_batch(question: str, batch_size: int, *learning_rates: float) -> tuple[Sweep, Sweep]:
    """Return the search for base_lr on one worker with the small batch, and the runs with the base_lr that it found."""
    fixed = {"batch_size": (batch_size,), "scaling": ("none",), "warmup_epochs": (0,)}
    return (Sweep("search", f"{question}: the learning rate that is right for the small batch",
                  {**fixed, "base_lr": learning_rates}, workers=(1,), seeds=(1,)),
            Sweep("small_batch", f"{question}: the small batch", fixed, workers=(1,)))


_C4_1 = (
    *_small_batch("C4.1", 128, 0.01, 0.03, 0.1, 0.3),
    Sweep("rules", C4_1, {"scaling": ("none", "sqrt", "linear"), "warmup_epochs": (0,)}, workers=(4,)),
    Sweep("warmup", C4_1, workers=(4,)),
)
SWEEPS = {"demo": _small_batch("C4.2", 4, 0.0003, 0.001, 0.003, 0.01), "paper": _C4_1, "laptop": _C4_1}

WORKERS = {"demo": 2, "paper": 4}
"""Number of workers on which the notebook runs each preset; it determines the global batch, and so k."""


def learning_rate(config: Config, images: int, size: int):
    """Return the learning rate as a function of the step.

    Args:
        config: The experiment.
        images: Number of training images.
        size: Number of workers.
    """
    # Horovod: a step trains on the images of all workers; the learning rate must suit the number of images.
    k = config.batch_size * size / config.base_batch_size
    peak = training.scaled_lr(config.base_lr, k, config.scaling)
    steps = datasets.steps_per_epoch(images, config.batch_size, size)
    falls = (int(config.decay_epoch * steps),) if config.decay_epoch else ()
    return training.Warmup(config.base_lr, peak, int(config.warmup_epochs * steps), falls)


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Train with a scaled learning rate, evaluate on validation and test images, and return the run's record."""
    import tensorflow as tf

    with training.start(config, options) as job:
        arrays = datasets.read_cifar10(datasets.locate("cifar10", config.data))
        kept = slice(config.images or None)
        arrays = dataclasses.replace(arrays, train_images=arrays.train_images[kept],
                                     train_labels=arrays.train_labels[kept])
        images = datasets.from_arrays(arrays, config.validation_split, config.seed)
        job.print_once(images.description)

        schedule = learning_rate(config, len(images.train), job.size)
        after = f" in the first step, {schedule.peak:.4g} after the warmup" if config.warmup_epochs else ""
        job.print_once(f"k = {config.batch_size * job.size} / {config.base_batch_size}, scaling {config.scaling}: "
                       f"learning rate {float(schedule(0)):.4g}{after}")
        model = getattr(models, config.model)(len(images.class_names))
        if config.optimizer == "adam":
            optimizer = tf.keras.optimizers.Adam(schedule)
        else:
            optimizer = tf.keras.optimizers.SGD(schedule, config.momentum)
        history = training.fit(
            job, model, optimizer, images.train, images.validation,
            batch_size=config.batch_size, epochs=config.epochs, augment=datasets.Augment() if config.augment else None,
        )
        test = training.evaluate(job, model, images.test, config.batch_size)
        return results.finish(
            job, history, tables=training.keep_model(job, model, images, config.batch_size),
            test_accuracy=test["accuracy"], test_loss=test["loss"],
            validation_images=len(images.validation),
        )


LAB = Lab(Config, PRESETS, run, sweeps=SWEEPS, data_set="cifar10")

if __name__ == "__main__":
    main()
