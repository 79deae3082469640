"""Lab 2: from one worker to many: the lines that change, and the speedup.

    labs run lab02_horovod --workers 2
    labs sweep lab02_horovod
    sbatch --ntasks-per-node=4 jobs/lab02_horovod.sh --preset paper
"""

from __future__ import annotations

import dataclasses
import time
from typing import Literal

from labs import Lab, Options, Sweep, datasets, fields, main, models, results, training


@dataclasses.dataclass(frozen=True)
class Config:
    """What a student may change in lab 2."""

    data: str = "embedded"
    """"embedded" (1,797 small digits), "real" (after `labs data fetch mnist`) or a folder with mnist.npz."""
    images: fields.ImageCount = 0
    """Training images to use; 0: all."""
    batch_size: fields.BatchSize = 32
    """Images per worker and step."""
    epochs: fields.Epochs = 5
    """Passes over the training images."""
    base_lr: fields.LearningRate = 0.001
    """Learning rate of Adam for one worker, before scaling."""
    scaling: fields.Scaling = "linear"
    """How the learning rate grows with the number of workers."""
    threads: fields.Threads = 0
    """TensorFlow's threads of one worker; 0: its share of the node's cores."""
    seed: fields.Seed = 1
    """Seed of the weights, the order of the images, and dropout."""
    code: Literal["kit", "textbook"] = "kit"
    """The training loop: the kit's `fit`, or `train_together` below, which uses plain Keras and Horovod."""


PRESETS = {
    "demo": Config(),
    "paper": Config(data="real", batch_size=128, epochs=40),
    # Report M's table on two cores: fewer images, and a smaller batch, so that four workers still take several steps.
    "laptop": Config(data="real", images=1024, epochs=40, threads=1),
}
M3 = "M3: test accuracy, time and speedup by number of epochs and of workers"
SWEEPS = {
    "demo": (Sweep("table", M3, {"epochs": (3, 5), "threads": (1,)}),),
    "paper": (Sweep("table", M3, {"epochs": (21, 40)}, (1, 2, 4)),),
    "laptop": (Sweep("table", M3, {"epochs": (21, 40)}, (1, 2, 4)),),
}


def plain_cnn():
    """Return a small network without dropout, so that one worker and many can reach the same weights."""
    import tensorflow as tf

    layers = tf.keras.layers
    return tf.keras.Sequential([
        layers.Input((28, 28, 1), dtype="uint8"),
        layers.Rescaling(1 / 255),
        layers.Conv2D(16, 3, strides=2, activation="relu"),
        layers.Conv2D(32, 3, strides=2, activation="relu"),
        layers.Flatten(),
        layers.Dense(10, activation="softmax"),
    ])


def train_alone(images, labels, batch_size, epochs, base_lr, seed):
    """Train with plain Keras, and return the model."""
    import tensorflow as tf

    tf.keras.utils.set_random_seed(seed)
    data = tf.data.Dataset.from_tensor_slices((images, labels))
    data = data.shuffle(len(images), seed=seed).repeat()
    steps = len(images) // batch_size
    model = plain_cnn()
    optimizer = tf.keras.optimizers.Adam(base_lr)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    callbacks = []
    model.fit(data.batch(batch_size), epochs=epochs, steps_per_epoch=steps, shuffle=False,
              callbacks=callbacks, verbose=0)
    return model


def train_together(images, labels, batch_size, epochs, base_lr, seed):
    """Train with plain Keras and Horovod, and return the model."""
    import tensorflow as tf

    import horovod_keras3 as hvd  # Horovod: its functions for Keras.

    hvd.init()  # Horovod: find the other workers; now rank() and size() are known.
    gpus = tf.config.list_physical_devices("GPU")  # Horovod: all GPUs of this node,
    if gpus:  # Horovod: each worker uses one of them, by its rank on the node.
        tf.config.set_visible_devices(gpus[hvd.local_rank() % len(gpus)], "GPU")  # Horovod: mine.
    tf.keras.utils.set_random_seed(seed)
    data = tf.data.Dataset.from_tensor_slices((images, labels))
    data = data.shuffle(len(images), seed=seed).repeat()
    data = data.shard(hvd.size(), hvd.rank())  # Horovod: every size-th image of one order.
    steps = len(images) // (batch_size * hvd.size())  # Horovod: a step has `size` batches.
    model = plain_cnn()
    optimizer = tf.keras.optimizers.Adam(base_lr * hvd.size())  # Horovod: longer steps.
    optimizer = hvd.DistributedOptimizer(optimizer)  # Horovod: average the gradients.
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]  # Horovod: equal start.
    model.fit(data.batch(batch_size), epochs=epochs, steps_per_epoch=steps, shuffle=False,
              callbacks=callbacks, verbose=0)
    return model


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
            return _run_by_hand(job, digits)

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


def _run_by_hand(job, digits):
    """Train with `train_together`, evaluate on the test images, and return the run's record."""
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")  # Keras 2 would warn that the broadcast is slower than a batch.
    config, images, labels = job.config, digits.train.images, digits.train.labels
    began = time.perf_counter()
    model = train_together(images, labels, config.batch_size, config.epochs, config.base_lr, config.seed)
    # Keras trained all epochs in one call: the history has one row, and no throughput without the first epoch.
    row = {"epoch": config.epochs, **{name: values[-1] for name, values in model.history.history.items()}}
    row |= {"images": config.epochs * len(images), "train_seconds": time.perf_counter() - began}
    loss, accuracy = model.evaluate(digits.test.images, digits.test.labels, verbose=0)
    return results.finish(job, [row], test_accuracy=accuracy, test_loss=loss)


LAB = Lab(Config, PRESETS, run, sweeps=SWEEPS, data_set="mnist")

if __name__ == "__main__":
    main()
