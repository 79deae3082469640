"""Lab 4: speedup and where the time goes: batch size and workers, weak and strong scaling.

    labs run lab04_speedup --workers 2 --batch-size 64
    labs sweep lab04_speedup
    sbatch --ntasks-per-node=4 jobs/lab04_speedup.sh --preset paper
"""

import dataclasses
from typing import Any, Literal

from labs import Lab, Options, Sweep, datasets, divide, fields, main, measure, models, results, training


@dataclasses.dataclass(frozen=True)
class Config:
    """What a student may change in lab 4."""

    data: fields.Cifar10 = "embedded"
    model: Literal["resnet10", "resnet18"] = "resnet10"
    images: fields.ImageCount = 1920
    batch_size: fields.BatchSize = 32
    epochs: fields.Epochs = 6
    base_lr: fields.LearningRate = 0.02
    """Learning rate for 32 images per step, before scaling."""
    scaling: fields.Scaling = "linear"
    momentum: fields.Momentum = 0.9
    augment: bool = True
    """Flip and shift the training images."""
    threads: fields.Threads = 1
    ledger: bool = True
    """Measure where the time goes, after the training."""
    seed: fields.Seed = 1


PRESETS = {
    "demo": Config(),
    # Report C1: 50,000 images, 32 to 512 per GPU. More than one, because TensorFlow traces the model in the first.
    "paper": Config(data="real", model="resnet18", images=0, epochs=3, threads=0, base_lr=0.025),
    # Report C's cells on two cores: a smaller network, and as many images as give four workers four steps of 512 each.
    "laptop": Config(data="real", images=8192),
}


WEAK = "C1, C2: time and speedup of an epoch for each batch size per worker, constant as workers are added"
STRONG = "C2: speedup at the same global batch, divided among the workers"
SWEEPS = {
    "demo": (
        # Half of this batch is the other one of the weak sweep: the same four runs answer both questions.
        Sweep("weak", WEAK, {"batch_size": (32, 64)}),
        Sweep("strong", STRONG, {"batch_size": (64,)}, adapt=divide),
    ),
    "paper": (
        Sweep("weak", WEAK, {"batch_size": (32, 128, 512)}, workers=(1, 2, 4)),
        Sweep("strong", STRONG, {"batch_size": (128, 512, 2048)}, workers=(1, 2, 4), adapt=divide),
    ),
    "laptop": (
        Sweep("weak", WEAK, {"batch_size": (32, 128, 512)}, workers=(1, 2, 4)),
        # A step of 2,048 images on one core takes longer than a second, and its ledger a minute.
        Sweep("strong", STRONG, {"batch_size": (128, 512)}, workers=(1, 2, 4), adapt=divide),
    ),
}


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Train on this worker's shard, measure where the time goes, and return the run's record."""
    import tensorflow as tf

    with training.start(config, options) as job:
        arrays = datasets.read_cifar10(datasets.locate("cifar10", config.data))
        images = datasets.from_arrays(arrays, validation_split=0.0, seed=config.seed)
        job.print_once(images.description)
        train = dataclasses.replace(images.train, positions=images.train.positions[:config.images or None])
        model = getattr(models, config.model)(len(images.class_names))
        # Horovod: the learning rate follows the global batch, the images of all workers in one step.
        learning_rate = training.scaled_lr(config.base_lr, config.batch_size * job.size / 32, config.scaling)
        optimizer = tf.keras.optimizers.SGD(learning_rate, config.momentum)
        settings: dict[str, Any] = {
            "batch_size": config.batch_size, "augment": datasets.Augment() if config.augment else None,
        }
        with measure.Utilization() as busy:
            history = training.fit(job, model, optimizer, train, epochs=config.epochs, **settings)
        test = training.evaluate(job, model, images.test, config.batch_size)
        seconds: dict[str, float] = {}
        rounds: list[dict[str, Any]] = []
        if config.ledger:
            seconds, rounds = results.ledger.measure(job, model, train, history, **settings)
        return results.finish(
            job, history, tables={"ledger": rounds}, test_accuracy=test["accuracy"], test_loss=test["loss"],
            gradient_bytes=measure.gradient_bytes(model), **busy.summary(skip=history[0]["train_seconds"]), **seconds,
        )


LAB = Lab(Config, PRESETS, run, sweeps=SWEEPS, data_set="cifar10")

if __name__ == "__main__":
    main()
