"""Lab 4: speedup and where the time goes: batch size and workers, weak and strong scaling.

    labs run lab04_speedup --workers 2 --batch-size 64
    labs sweep lab04_speedup
    sbatch --ntasks-per-node=4 jobs/lab04_speedup.sh --preset paper
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from labs.run.options import Options
from labs.run.sweeps import Sweep, divide
from labs.run.worker import main


@dataclasses.dataclass(frozen=True)
class Config:
    """What a student may change in lab 4."""

    data: str = "embedded"
    """"embedded" (drawn pictures), "real" (after `labs data fetch cifar10`) or a folder with CIFAR-10's .bin files."""
    model: Literal["resnet10", "resnet18"] = "resnet10"
    """The network, from labs/models/cifar.py."""
    images: int = 768
    """Training images to use, to keep a demo short; 0: all."""
    batch_size: int = 16
    """Images per worker and step."""
    epochs: int = 3
    """Passes over the training images; the first is left out of all rates."""
    base_lr: float = 0.02
    """Learning rate of one worker with 32 images per step, before scaling."""
    scaling: Literal["linear", "sqrt", "none"] = "linear"
    """How the learning rate grows with the global batch."""
    momentum: float = 0.9
    """Momentum of SGD."""
    augment: bool = True
    """Flip and shift the training images."""
    threads: int = 1
    """TensorFlow's threads of one worker; 0: its share of the cores. With 1, a core is to a worker what a GPU is."""
    ledger: bool = True
    """Measure where the time goes, after the training."""
    seed: int = 1
    """Of the weights, the order and the augmentation."""


PRESETS = {
    "demo": Config(),
    # Report C1: 50,000 images, 32 to 512 per GPU. A second epoch, because the first also traces the model.
    "paper": Config(data="real", model="resnet18", images=0, batch_size=32, threads=0, base_lr=0.025),
}


WEAK = "C1, C2: time and speedup of an epoch for each batch size per worker, which stays as workers are added"
STRONG = "C2: speedup at the same global batch, divided among the workers"
SWEEPS = {
    "demo": (
        # Half of the strong sweep's batch is weak's other one: the same four runs answer both.
        Sweep("weak", WEAK, {"batch_size": (16, 32)}),
        Sweep("strong", STRONG, {"batch_size": (32,)}, adapt=divide),
    ),
    "paper": (
        Sweep("weak", WEAK, {"batch_size": (32, 128, 512)}, workers=(1, 2, 4)),
        Sweep("strong", STRONG, {"batch_size": (128, 512, 2048)}, workers=(1, 2, 4), adapt=divide),
    ),
}


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Train on this worker's share, measure where the time goes, and return the run's record."""
    import tensorflow as tf

    from labs.datasets import arrays, fetch, splits
    from labs.datasets.augment import Augment
    from labs.measure import ledger, wire
    from labs.measure.utilization import Utilization
    from labs.models import cifar
    from labs.report import run_record
    from labs.training import schedule, workers
    from labs.training.loop import evaluate, fit

    with workers.start("lab04_speedup", config, options) as job:
        pictures = splits.from_arrays(arrays.read_cifar10(fetch.locate("cifar10", config.data)), 0.0, config.seed)
        job.say(pictures.description)
        train = dataclasses.replace(pictures.train, positions=pictures.train.positions[:config.images or None])
        model = getattr(cifar, config.model)(len(pictures.class_names))
        # Horovod: the rate follows the images of one step of all workers together.
        rate = schedule.scaled_lr(config.base_lr, config.batch_size * job.size / 32, config.scaling)
        how: dict[str, Any] = {"batch_size": config.batch_size, "augment": Augment() if config.augment else None}
        with Utilization() as busy:
            history = fit(job, model, tf.keras.optimizers.SGD(rate, config.momentum), train,
                          epochs=config.epochs, **how)
        test = evaluate(job, model, pictures.test, config.batch_size)
        times, rounds = ledger.measure(job, model, train, history, **how) if config.ledger else ({}, [])
        return run_record.finish(
            job, history, tables={"ledger": rounds},
            test_accuracy=test["accuracy"], test_loss=test["loss"],
            gradient_bytes=wire.gradient_bytes(model),
            **busy.summary(skip=history[0]["train_seconds"]), **times,
        )


if __name__ == "__main__":
    main()
