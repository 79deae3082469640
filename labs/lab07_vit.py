"""Lab 7: a small vision transformer: transports, bytes on the wire, and when one worker is faster than two.

    labs run lab07_vit --workers 2
    labs run lab07_vit --workers 2 --backend gloo
    labs sweep lab07_vit
    labs cluster sweep lab07_vit --preset cluster
    sbatch jobs/lab07_vit.sh --preset paper
"""

import dataclasses
from typing import Annotated

from labs import Lab, Options, Sweep, datasets, divide, fields, main, measure, models, results, training


@dataclasses.dataclass(frozen=True)
class Config:
    """What a student may change in lab 7."""

    data: fields.Cifar10 = "embedded"
    images: fields.ImageCount = 0
    width: fields.Width = 64
    """Size of a token's vector; width and depth determine the size of the model."""
    depth: fields.Depth = 2
    """Number of blocks, each with attention and a hidden layer."""
    heads: Annotated[int, fields.Range(1, 4096)] = 4
    """Attention heads per block; the width must be a multiple of their number."""
    patch_size: Annotated[int, fields.Range(1, 4096)] = 8
    """Side of a patch in pixels; each patch is a token, and an image has 32 x 32 pixels."""
    batch_size: fields.BatchSize = 32
    epochs: fields.Epochs = 6
    base_lr: fields.LearningRate = 0.001
    """Learning rate of Adam for 32 images per step of all workers together, before scaling."""
    scaling: fields.Scaling = "sqrt"
    warmup_epochs: Annotated[int, fields.Range(0, 2**20)] = 1
    """Epochs in which the learning rate rises; a transformer diverges most easily in its first steps."""
    backend: fields.Backend = "auto"
    threads: fields.Threads = 1
    traffic: bool = True
    """After the training, count the bytes on the wire at this batch size, twice and four times as large."""
    seed: fields.Seed = 1


PRESETS = {
    "demo": Config(),
    # DeiT-Ti, on CIFAR-10 with patches of 4 pixels: 64 tokens.
    "paper": Config(data="real", width=192, depth=12, heads=3, patch_size=4, batch_size=128, epochs=20, threads=0,
                    warmup_epochs=3),
    "cluster": Config(),
}


CROSSOVER = "T3: from which model size on are two workers faster, at a constant global batch?"
SHORT = {"traffic": (False,), "epochs": (4,)}  # Three epochs are timed: the first is not.
SMALL = SHORT | {"images": (768,), "depth": (1,), "patch_size": (8,), "width": (16, 64, 256)}
SWEEPS = {
    "demo": (
        Sweep("backends", "T3, T4, T5: accuracy, time and bytes on one worker and on two, over MPI and over Gloo",
              {"backend": ("mpi", "gloo")}, seeds=(1,), adapt=divide),
        Sweep("crossover", CROSSOVER, SMALL, adapt=divide),
    ),
    "cluster": (
        Sweep("links", "T3: one node against two over links of several bandwidths, at two global batches",
              SMALL | {"width": (256,), "batch_size": (32, 128)}, seeds=(1, 2, 3, 4, 5), adapt=divide,
              nodes=Sweep.node_per_worker, links=("50mbit", "200mbit", "1gbit", "10gbit")),
        Sweep("size", "T3: models of three sizes over one link", SMALL, adapt=divide, nodes=Sweep.node_per_worker,
              links=("1gbit",)),
    ),
    "paper": (
        Sweep("backends", "T3, T4: accuracy and time on one GPU and on two, over NCCL, MPI and Gloo",
              {"backend": ("nccl", "mpi", "gloo")}, adapt=divide),
        Sweep("crossover", CROSSOVER, SHORT | {"width": (48, 96, 192, 384, 768)}, workers=(1, 2, 4), adapt=divide),
    ),
}


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Train on this worker's shard, count the bytes on the wire, and return the run's record."""
    import tensorflow as tf

    with training.start(config, options) as job:
        arrays = datasets.read_cifar10(datasets.locate("cifar10", config.data))
        images = datasets.from_arrays(arrays, validation_split=0.0, seed=config.seed)
        train = dataclasses.replace(images.train, positions=images.train.positions[:config.images or None])
        classes = len(images.class_names)
        model = models.vit(32, classes, config.width, config.depth, config.heads, config.patch_size)
        job.print_once(f"{images.description}; {model.count_params():,} parameters")
        # Horovod: the learning rate follows the global batch, the images of all workers in one step.
        peak = training.scaled_lr(config.base_lr, config.batch_size * job.size / 32, config.scaling)
        steps = datasets.steps_per_epoch(len(train), config.batch_size, job.size)
        optimizer = tf.keras.optimizers.Adam(training.Warmup(peak / 100, peak, config.warmup_epochs * steps))
        history = training.fit(job, model, optimizer, train, batch_size=config.batch_size, epochs=config.epochs)
        test = training.evaluate(job, model, images.test, config.batch_size)
        tables = training.keep_model(job, model, images, config.batch_size)
        rows = []
        if config.traffic and job.size > 1:  # One worker sends nothing.
            rows = measure.wire.measure(job, model, train, [config.batch_size * factor for factor in (1, 2, 4)])
        return results.finish(
            job, history, tables=tables | {"wire": rows}, test_accuracy=test["accuracy"], test_loss=test["loss"],
            parameters=model.count_params(), gradient_bytes=measure.gradient_bytes(model),
            **{name: float(rows[0][name]) for name in ("predicted_bytes_per_step", "measured_bytes_per_step") if rows},
        )


LAB = Lab(Config, PRESETS, run, sweeps=SWEEPS, data_set="cifar10")

if __name__ == "__main__":
    main()
