"""Lab 2: from one worker to many: the lines that change, and the speedup.

    labs run lab02_horovod --workers 2
    labs sweep lab02_horovod
    sbatch --ntasks-per-node=4 jobs/lab02_horovod.sh --preset paper
"""

import dataclasses
import time
from collections.abc import Iterable
from typing import Literal

from labs import Lab, LabError, Options, Sweep, datasets, fields, main, models, results, training


@dataclasses.dataclass(frozen=True)
class Config:
    """What a student may change in lab 2."""

    data: fields.Mnist = "embedded"
    images: fields.ImageCount = 0
    batch_size: fields.BatchSize = 32
    epochs: fields.Epochs = 5
    base_lr: fields.LearningRate = 0.001
    scaling: fields.Scaling = "linear"
    threads: fields.Threads = 0
    seed: fields.Seed = 1
    code: Literal["kit", "textbook"] = "kit"
    """The training loop: the kit's `fit`, or one of ten lines, which accepts wrong shards."""
    order: Literal["sharded", "own_seeds", "unsharded"] = "sharded"
    """Which images each of four workers takes ("textbook" only): its shard of one common order; its shard of an order
    with its own seed; or, on all workers, the same images."""
    reshuffle: bool = True
    """Reshuffle in each epoch; "textbook" only."""


PRESETS = {
    "demo": Config(),
    "paper": Config(data="real", batch_size=128, epochs=40),
    # Report M's table on two cores: fewer images, and a smaller batch, so that four workers still take several steps.
    "laptop": Config(data="real", images=1024, epochs=40, threads=1),
}
M3 = "M3: test accuracy, time and speedup by number of epochs and of workers"
C5 = "C5: test accuracy with the epoch forgotten, with own seeds, and without shards"
ORDERS = Sweep("orders", C5, {"code": ("textbook",), "batch_size": (128,), "epochs": (40,), "reshuffle": (True, False),
                              "order": ("sharded", "own_seeds", "unsharded")}, (1,), seeds=(1, 2, 3, 4, 5))
SWEEPS = {
    "demo": (Sweep("table", M3, {"epochs": (3, 5), "threads": (1,)}),),
    "paper": (Sweep("table", M3, {"epochs": (21, 40)}, (1, 2, 4)),),
    "laptop": (Sweep("table", M3, {"epochs": (21, 40)}, (1, 2, 4)), ORDERS),
}
RANKS = 4
"""Workers whose shards `divide_images` makes. On fewer real workers, each trains on the shards of several."""


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Train on this worker's shard, evaluate on the test images, and return the run's record."""
    import tensorflow as tf

    with training.start(config, options) as job:
        arrays = datasets.read_mnist(datasets.locate("mnist", config.data))
        kept = slice(config.images or None)
        arrays = dataclasses.replace(arrays, train_images=arrays.train_images[kept],
                                     train_labels=arrays.train_labels[kept])
        digits = datasets.from_arrays(arrays, validation_split=0.0, seed=config.seed)
        job.print_once(digits.description)
        if config.code == "textbook":
            return train_in_order(job, digits)
        if (config.order, config.reshuffle) != (Config.order, Config.reshuffle):
            raise LabError("the kit's `fit` refuses wrong shards; for --order and --no-reshuffle, add --code textbook")

        model = models.mnist_cnn()
        # Horovod: a step of `size` workers trains on `size` times as many images, so the learning rate may grow.
        learning_rate = training.scaled_lr(config.base_lr, job.size, config.scaling)
        history = training.fit(
            job, model, tf.keras.optimizers.Adam(learning_rate), digits.train,
            batch_size=config.batch_size, epochs=config.epochs,
        )
        test = training.evaluate(job, model, digits.test, config.batch_size)
        confusion = training.keep_model(job, model, digits, config.batch_size)
        return results.finish(job, history, tables=confusion, test_accuracy=test["accuracy"], test_loss=test["loss"])


def divide_images(config: Config, images, ranks: Iterable[int], global_batch_size: int, epoch: int):
    """Return the Shard on which some of RANKS workers train together in an epoch, in the order of the Config.

    `images` are positions of the training images, or their number; `global_batch_size` is that of all RANKS workers.
    """
    import numpy as np

    from labs.datasets import sharding

    if global_batch_size % RANKS:
        raise LabError(f"{RANKS} workers cannot share a global batch of {global_batch_size}; "
                       "choose another --batch-size")
    shards = [sharding.shard(images, global_batch_size // RANKS, 0 if config.order == "unsharded" else rank, RANKS,
                             epoch if config.reshuffle else 0,
                             config.seed + 1000 * rank * (config.order == "own_seeds")) for rank in ranks]
    return sharding.Shard(np.concatenate([each.rows for each in shards], axis=1),
                          np.concatenate([each.weights for each in shards], axis=1), epoch)


def train_in_order(job, digits):
    """Train a network without dropout on the images that `divide_images` gives, and return the run's record.

    The kit's `fit` would refuse wrong shards before step 1.
    """
    import tensorflow as tf

    config, train, size = job.config, digits.train, job.size
    if RANKS % size:
        raise LabError(f"{size} workers cannot stand for {RANKS}; choose --workers 1, 2 or {RANKS}")
    ranks = range(job.rank, RANKS, size)  # Horovod: the shards of these workers are mine.
    layers = tf.keras.layers
    model = tf.keras.Sequential([
        layers.Input(train.images.shape[1:], dtype="uint8"), layers.Rescaling(1 / 255),
        layers.Conv2D(16, 3, strides=2, activation="relu"), layers.Conv2D(32, 3, strides=2, activation="relu"),
        layers.Flatten(), layers.Dense(10, activation="softmax"),
    ])
    learning_rate = training.scaled_lr(config.base_lr, RANKS, config.scaling)
    # Horovod: average the gradients of all workers.
    optimizer = training.hvd_ops.distributed_optimizer(tf.keras.optimizers.Adam(learning_rate))
    optimizer.build(model.trainable_variables)
    model.compile(optimizer, "sparse_categorical_crossentropy", weighted_metrics=["accuracy"], jit_compile=False)
    training.hvd_ops.broadcast_state(model)  # Horovod: all workers begin with equal weights.
    history: list[dict] = []
    for epoch in range(config.epochs):
        mine = divide_images(config, train.positions, ranks, config.batch_size * size, epoch)
        began = time.perf_counter()
        batches = datasets.train_batches(train.images, train.labels, mine, epoch=epoch, seed=config.seed)
        logs = model.fit(batches, steps_per_epoch=mine.steps, shuffle=False, verbose=0).history
        history.append({"epoch": epoch + 1, **{name: float(values[0]) for name, values in logs.items()},
                        "images": len(train), "steps": mine.steps, "train_seconds": time.perf_counter() - began})
    loss, accuracy = model.evaluate(digits.test.images, digits.test.labels, verbose=0)
    return results.finish(job, history, test_accuracy=accuracy, test_loss=loss)


LAB = Lab(Config, PRESETS, run, sweeps=SWEEPS, data_set="mnist")

if __name__ == "__main__":
    main()
