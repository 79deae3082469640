"""Lab 9 as one file: a fruit classifier with batch norm, and its learning rate on several workers.

    python examples/lab09_fruits.py
    horovodrun -np 2 python examples/lab09_fruits.py
    mpirun -np 2 python examples/lab09_fruits.py
    sbatch jobs/example.sh examples/lab09_fruits.py

Batch norm uses the images of one worker, so two workers do not compute what one computes. The curve differs from that
of `labs run lab09_fruits`, which has other images and augments them.
"""

import argparse
import itertools
import math
from pathlib import Path

import horovod_keras3 as hvd  # Horovod: its Keras layer, for Keras 3.
import numpy as np
import tensorflow as tf
from PIL import Image

SEED = 1
parser = argparse.ArgumentParser(description="Train on pictures of fruits.")
parser.add_argument("--data", help="a folder with a folder of .jpg files per class; by default simple fruits")
parser.add_argument("--batch-size", type=int, default=16, help="images per worker and step")
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--base-lr", type=float, default=0.003, help="learning rate of one worker")
parser.add_argument("--scaling", choices=["linear", "none"], default="linear", help="rule for the learning rate")
args = parser.parse_args()

hvd.init()  # Horovod: finds the other workers; from here on rank() and size() are known.
gpus = tf.config.list_physical_devices("GPU")
tf.config.set_visible_devices(gpus[hvd.local_rank():][:1], "GPU")  # Horovod: each worker of a node has its own GPU.
tf.keras.utils.set_random_seed(SEED)

if args.data:
    files = sorted(Path(args.data).glob("*/*.jpg"))
    names = sorted({file.parent.name for file in files})
    kinds = np.array([names.index(file.parent.name) for file in files])
    photos = np.stack([np.asarray(Image.open(file).convert("RGB").resize((32, 32))) for file in files])
else:  # Ovals on white; classes differ in colour and in width.
    rng, kinds, (y, x) = np.random.default_rng(SEED), np.arange(480) * 6 // 480, np.mgrid[-16:16, -16:16]
    colours = np.array([[200, 60, 40], [190, 130, 50]])[kinds // 3] + rng.integers(-40, 40, (480, 3))
    inside = (x / (8 + 2 * (kinds % 3)[:, None, None])) ** 2 + (y / 12) ** 2 < 1
    photos = np.where(inside[..., None], colours[:, None, None], 255).astype("uint8")
held_out = np.arange(len(photos)) % 4 == 0  # A quarter of each class, because the images are sorted by class.
images, labels, val_images, val_labels = photos[~held_out], kinds[~held_out], photos[held_out], kinds[held_out]

steps = math.ceil(len(images) / args.batch_size / hvd.size())  # Horovod: equal on all workers; else one would wait.


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


def average_statistics(logs):
    """Average batch norm's statistics: each worker saw different images, and gradients do not include them."""
    for variable in model.non_trainable_weights:
        variable.assign(hvd.allreduce(variable.value))  # Horovod: the mean over all workers.


layers = tf.keras.layers
model = tf.keras.Sequential([
    layers.Input((32, 32, 3)), layers.Rescaling(1 / 127.5, offset=-1),
    *(layer for channels in (8, 16, 32, 64) for layer in (
        layers.Conv2D(channels, 3, strides=2, padding="same"), layers.BatchNormalization(momentum=0.9), layers.ReLU())),
    layers.GlobalAveragePooling2D(), layers.Dense(int(kinds.max()) + 1, activation="softmax"),
])
scaled_lr = args.base_lr * (hvd.size() if args.scaling == "linear" else 1)  # Horovod: the batch is larger.
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(scaled_lr))  # Horovod: averages the gradients.
model.compile(optimizer, "sparse_categorical_crossentropy", weighted_metrics=["accuracy"],
              jit_compile=False)  # Horovod: by default, XLA cannot compile Horovod's operations.
mine = slice(hvd.rank(), None, hvd.size())  # Horovod: each validation image on one worker.
history = model.fit(
    batches(), steps_per_epoch=steps, epochs=args.epochs, shuffle=False,
    validation_data=(val_images[mine], val_labels[mine]), verbose=2 if hvd.rank() == 0 else 0,  # Horovod: one prints.
    callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0),  # Horovod: all begin with the weights of rank 0.
               tf.keras.callbacks.LambdaCallback(on_test_begin=average_statistics),
               hvd.callbacks.MetricAverageCallback()])  # Horovod: loss and accuracy of all workers' images.

if hvd.rank() == 0:  # Horovod: all workers have the same model; one writes it.
    model.save("lab09_fruits.keras")
