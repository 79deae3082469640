"""Lab 3 as one file: a learning rate that follows the batch size, with a warmup.

    python examples/lab03_lr_scaling.py
    horovodrun -np 2 python examples/lab03_lr_scaling.py
    mpirun -np 2 python examples/lab03_lr_scaling.py
    sbatch jobs/example.sh examples/lab03_lr_scaling.py

Two workers compute what one computes with twice the batch size, up to rounding. With CIFAR-10 the loss is that of
`labs run lab03_lr_scaling --data DIR --validation-split 0`, up to rounding.
"""

import argparse
import itertools
import math
from pathlib import Path

import horovod_keras3 as hvd  # Horovod: its Keras layer, for Keras 3.
import numpy as np
import tensorflow as tf

BASE_BATCH_SIZE, DECAY_EPOCH, SEED = 4, 5, 1
parser = argparse.ArgumentParser(description="Train on small images with a scaled learning rate.")
parser.add_argument("--data", help="folder of CIFAR-10's data_batch_*.bin, test_batch.bin; default: synthetic stripes")
parser.add_argument("--batch-size", type=int, default=64, help="images per worker and step")
parser.add_argument("--epochs", type=int, default=7)
parser.add_argument("--base-lr", type=float, default=0.001, help="learning rate for BASE_BATCH_SIZE images per step")
parser.add_argument("--warmup-epochs", type=int, default=3, help="epochs of warmup to the scaled learning rate")
args = parser.parse_args()

hvd.init()  # Horovod: finds the other workers; from here on rank() and size() are known.
gpus = tf.config.list_physical_devices("GPU")
tf.config.set_visible_devices(gpus[hvd.local_rank():][:1], "GPU")  # Horovod: each worker of a node has its own GPU.
tf.keras.utils.set_random_seed(SEED)

if args.data:  # CIFAR-10's binary files: a record is a label and three planes of colour.
    files = [*sorted(Path(args.data).glob("data_batch_*.bin")), Path(args.data) / "test_batch.bin"]
    records = np.concatenate([np.fromfile(file, "uint8") for file in files]).reshape(-1, 3073)
    pictures, kinds = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), records[:, 0].astype("int64")
    tests = files[-1].stat().st_size // 3073
else:  # Noisy stripes; their direction is the class.
    rng, kinds, tests = np.random.default_rng(SEED), np.arange(2500) % 10, 500
    (y, x), angles = np.mgrid[:32, :32], kinds[:, None, None] * np.pi / 10
    waves = np.sin(0.8 * (x * np.cos(angles) + y * np.sin(angles)) + 2 * np.pi * rng.random((2500, 1, 1)))
    pictures = (128 + 20 * waves[..., None] + rng.normal(0, 60, (2500, 32, 32, 3))).clip(0, 255).astype("uint8")
images, labels, test_images, test_labels = pictures[:-tests], kinds[:-tests], pictures[-tests:], kinds[-tests:]

global_batch_size = args.batch_size * hvd.size()  # Horovod: a step uses the images of all workers.
steps = math.ceil(len(images) / global_batch_size)  # Horovod: equal on all workers; else one would wait.
k = global_batch_size / BASE_BATCH_SIZE  # Horovod: the learning rate follows the images of a step on all workers.


def multiplier(epoch):
    """Return learning rate / base_lr: it rises from 1 to k, and falls to a tenth after DECAY_EPOCH."""
    rise = 1 if epoch >= args.warmup_epochs else epoch / args.warmup_epochs
    return (1 + (k - 1) * rise) * (0.1 if epoch >= DECAY_EPOCH else 1)


def batches():
    """Yield this worker's images, labels and weights of each step; each image is used once per epoch, by one worker."""
    shape = (steps, args.batch_size, hvd.size())
    for epoch in itertools.count():
        order = np.random.default_rng([SEED, epoch]).permutation(len(images))  # Horovod: the same on all workers.
        rows = np.resize(order, shape)  # The last step is filled up with images of the first step,
        weights = (np.arange(rows.size).reshape(shape) < len(order)).astype("float32")  # which have weight 0 there.
        weights[-1] /= weights[-1].mean()  # The other images weigh more, so that the mean of the step is theirs.
        for row, weight in zip(rows[..., hvd.rank()], weights[..., hvd.rank()], strict=True):  # Horovod: my share.
            yield images[row], labels[row], weight


layers = tf.keras.layers
model = tf.keras.Sequential([
    layers.Input((32, 32, 3)), layers.Rescaling(1 / 127.5, offset=-1),
    *(layers.Conv2D(channels, 3, strides=2, padding="same", activation="relu") for channels in (16, 32, 64)),
    layers.Flatten(), layers.Dense(256, activation="relu"), layers.Dense(10, activation="softmax"),
])
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(args.base_lr))  # Horovod: averages the gradients.
model.compile(optimizer, "sparse_categorical_crossentropy", weighted_metrics=["accuracy"],
              jit_compile=False)  # Horovod: by default, XLA cannot compile Horovod's operations.
history = model.fit(
    batches(), steps_per_epoch=steps, epochs=args.epochs, shuffle=False,
    verbose=2 if hvd.rank() == 0 else 0,  # Horovod: one worker prints.
    callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0),  # Horovod: all begin with the weights of rank 0.
               hvd.callbacks.MetricAverageCallback(),  # Horovod: loss and accuracy of all workers' images.
               hvd.callbacks.LearningRateScheduleCallback(  # Horovod: sets the learning rate before each step.
                   args.base_lr, multiplier, staircase=False, steps_per_epoch=steps)])

if hvd.rank() == 0:  # Horovod: all workers have the same model; one evaluates it and writes it.
    loss, accuracy = model.evaluate(test_images, test_labels, verbose=0)
    print(f"{hvd.size()} workers, {steps} steps per epoch, test loss {loss:.4f}, test accuracy {accuracy:.4f}")
    model.save("lab03_lr_scaling.keras")
