"""Lab 7: a small vision transformer: which transport, how many bytes, and when one worker is the right answer.

    labs run lab07_vit --workers 2
    labs run lab07_vit --workers 2 --backend gloo
    labs sweep lab07_vit
    sbatch jobs/lab07_vit.sh --preset paper
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from labs.report import transports
from labs.run import naming
from labs.run.options import Options
from labs.run.sweeps import Sweep, divide
from labs.run.worker import main


@dataclasses.dataclass(frozen=True)
class Config:
    """What a student may change in lab 7."""

    data: str = "embedded"
    """"embedded" (drawn pictures), "real" (after `labs data fetch cifar10`) or a folder with CIFAR-10's .bin files."""
    images: int = 0
    """Training images to use, to measure for a short time; 0: all."""
    width: int = 64
    """Numbers per token: with the depth, the size of the model."""
    depth: int = 2
    """Blocks of attention and a hidden layer."""
    heads: int = 4
    """Of each attention; they divide the width."""
    patch_size: int = 8
    """Side of a patch in pixels; each patch is a token, and a picture has 32 x 32 pixels."""
    batch_size: int = 32
    """Images per worker and step."""
    epochs: int = 6
    """Passes over the training images; the first is not timed."""
    base_lr: float = 0.001
    """Learning rate of Adam at 32 images per step of all workers together, before scaling."""
    scaling: Literal["linear", "sqrt", "none"] = "sqrt"
    """How the learning rate grows with the global batch."""
    warmup_epochs: int = 1
    """Epochs in which the learning rate climbs from nearly nothing: a transformer's first steps are its riskiest."""
    backend: Literal["mpi", "gloo"] = "mpi"
    """What carries tensors between the workers (those of a GPU go over NCCL, where Horovod was built with it)."""
    threads: int = 1
    """TensorFlow's threads of one worker; 0: its share of the cores. With 1, a core is to a worker what a GPU is."""
    traffic: bool = True
    """Count the bytes that cross, after the training: with this batch size, twice and four times as many images."""
    seed: int = 1
    """Of the weights and the order."""


PRESETS = {
    "demo": Config(),
    # DeiT-Ti, on CIFAR-10 with patches of 4 pixels: 64 tokens.
    "paper": Config(data="real", width=192, depth=12, heads=3, patch_size=4, batch_size=128, epochs=20, threads=0,
                    warmup_epochs=3),
}

BACKENDS = "T3, T4, T5: accuracy, time and bytes on one worker and on two, over MPI and over Gloo"
CROSSOVER = "T3: from which size of the model on are two workers faster, the global batch held?"
SHORT = {"traffic": (False,), "epochs": (4,)}  # Three epochs are timed, after the first.
SWEEPS = {
    "demo": (
        Sweep("backends", BACKENDS, {"backend": ("mpi", "gloo")}, seeds=(1,), adapt=divide),
        Sweep("crossover", CROSSOVER, SHORT | {"images": (768,), "depth": (1,), "patch_size": (8,),
                                               "width": (16, 64, 256)}, adapt=divide),
    ),
    "paper": (
        Sweep("backends", BACKENDS, {"backend": ("mpi", "gloo")}, adapt=divide),
        Sweep("crossover", CROSSOVER, SHORT | {"width": (48, 96, 192, 384, 768)}, workers=(1, 2, 4), adapt=divide),
    ),
}


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Train on this worker's share, count what crosses, and return the run's record."""
    from labs.datasets import arrays, fetch, splits
    from labs.measure import wire
    from labs.models.transformer import vit
    from labs.report import run_record
    from labs.results import tables
    from labs.training import workers
    from labs.training.loop import evaluate, fit

    with workers.start("lab07_vit", config, options) as job:
        pictures = splits.from_arrays(arrays.read_cifar10(fetch.locate("cifar10", config.data)), 0.0, config.seed)
        train = dataclasses.replace(pictures.train, positions=pictures.train.positions[:config.images or None])
        model = vit(32, len(pictures.class_names), config.width, config.depth, config.heads, config.patch_size)
        job.say(f"{pictures.description}; {model.count_params():,} parameters")
        history = fit(job, model, _optimizer(config, job.size, len(train)), train,
                      batch_size=config.batch_size, epochs=config.epochs)
        test = evaluate(job, model, pictures.test, config.batch_size)
        counted = config.traffic and job.size > 1  # One worker has nobody to send to.
        rows = wire.measure(job, model, train, [config.batch_size * n for n in (1, 2, 4)]) if counted else []
        record = run_record.finish(
            job, history, tables={"wire": rows}, test_accuracy=test["accuracy"], test_loss=test["loss"],
            parameters=model.count_params(), gradient_bytes=wire.gradient_bytes(model),
            **{name: float(rows[0][name]) for name in ("predicted_bytes_per_step", "measured_bytes_per_step") if rows},
        )
        if job.rank == 0 and job.size > 1:
            print(tables.against_one_worker(record, naming.results_root(options), free=("backend", "traffic")))
        return record


def _optimizer(config: Config, size: int, images: int):
    """Return Adam with a rate that climbs, to where the global batch wants it."""
    import tensorflow as tf

    from labs.datasets.sharding import steps_per_epoch
    from labs.training import schedule

    # Horovod: the rate follows the images of one step of all workers together.
    rate = schedule.scaled_lr(config.base_lr, config.batch_size * size / 32, config.scaling)
    steps = steps_per_epoch(images, config.batch_size, size)
    return tf.keras.optimizers.Adam(schedule.Warmup(rate / 100, rate, config.warmup_epochs * steps))


summary = transports.summary


if __name__ == "__main__":
    main()
