"""Lab 10 as one file: pictures with a validation split, on several workers.

    python examples/lab10_caltech.py
    horovodrun -np 2 python examples/lab10_caltech.py
    mpirun -np 2 python examples/lab10_caltech.py
    sbatch jobs/example.sh examples/lab10_caltech.py

With --warmup-epochs 0 two workers compute what one computes with twice the batch size and twice the learning rate, up
to rounding. The curve differs from that of `labs run lab10_caltech`: images, split, augmentation and norm differ.
"""

import argparse
import itertools
import math
from pathlib import Path

import horovod_keras3 as hvd  # Horovod: its Keras layer, for Keras 3.
import numpy as np
import tensorflow as tf
from PIL import Image, ImageDraw

SEED = 1
parser = argparse.ArgumentParser(description="Train on pictures, and validate after each epoch.")
parser.add_argument("--data", help="a folder with a folder of .jpg files per class; by default polygons")
parser.add_argument("--batch-size", type=int, default=16, help="images per worker and step")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--base-lr", type=float, default=0.01, help="learning rate of one worker")
parser.add_argument("--warmup-epochs", type=int, default=2, help="epochs of warmup to the scaled learning rate")
args = parser.parse_args()

hvd.init()  # Horovod: finds the other workers; from here on rank() and size() are known.
gpus = tf.config.list_physical_devices("GPU")
tf.config.set_visible_devices(gpus[hvd.local_rank():][:1], "GPU")  # Horovod: each worker of a node has its own GPU.
tf.keras.utils.set_random_seed(SEED)

if args.data:
    files = sorted(Path(args.data).glob("*/*.jpg"))
    names = sorted({file.parent.name for file in files})
    kinds = np.array([names.index(file.parent.name) for file in files])
    photos = np.stack([np.asarray(Image.open(file).convert("RGB").resize((48, 48))) for file in files])
else:  # Regular polygons with noise; classes differ in the number of corners and in the typical colour.
    rng, kinds, pictures = np.random.default_rng(SEED), np.arange(600) * 4 // 600, []
    for kind in kinds.tolist():
        pictures.append(Image.new("RGB", (48, 48), tuple(rng.integers(0, 128, 3).tolist())))
        x, y, radius, tilt, hue = rng.integers((20, 20, 12, 0, 0), (29, 29, 20, 30, 120)).tolist()
        ImageDraw.Draw(pictures[-1]).regular_polygon((x, y, radius), 3 + kind, tilt, f"hsl({90 * kind + hue},70%,60%)")
    photos = np.stack([np.asarray(picture) for picture in pictures]) + rng.integers(0, 20, (600, 48, 48, 3), "uint8")
fifth = np.arange(len(photos)) % 5  # A fifth of each class is for the test and one for validation.
(test_images, test_labels), (val_images, val_labels), (images, labels) = (
    (photos[some], kinds[some]) for some in (fifth == 0, fifth == 1, fifth > 1))
steps = math.ceil(len(images) / args.batch_size / hvd.size())  # Horovod: equal on all workers; else one would wait.


def batches():
    """Yield this worker's images, labels and weights of each step; each image is used once per epoch, by one worker."""
    shape = (steps, args.batch_size, hvd.size())
    for epoch in itertools.count():
        order = np.random.default_rng([SEED, epoch]).permutation(len(images))  # Horovod: the same on all workers.
        flips = np.random.default_rng([SEED, epoch, 1]).random(len(images)) < 0.5  # Horovod: and these.
        rows = np.resize(order, shape)  # The last step is filled up with images of the first step,
        weights = (np.arange(rows.size).reshape(shape) < len(order)).astype("float32")  # which have weight 0 there.
        weights[-1] /= weights[-1].mean()  # The other images weigh more, so that the mean of the step is theirs.
        for row, weight in zip(rows[..., hvd.rank()], weights[..., hvd.rank()], strict=True):  # Horovod: my share.
            yield np.where(flips[row, None, None, None], images[row, :, ::-1], images[row]), labels[row], weight


layers = tf.keras.layers
model = tf.keras.Sequential([
    layers.Input((48, 48, 3)), layers.Rescaling(1 / 127.5, offset=-1),
    *(layer for channels in (16, 32, 64, 128) for layer in (
        layers.Conv2D(channels, 3, strides=2, padding="same"), layers.GroupNormalization(8), layers.ReLU())),
    layers.GlobalAveragePooling2D(), layers.Dense(int(kinds.max()) + 1, activation="softmax"),
])
scaled_lr = args.base_lr * hvd.size()  # Horovod: larger batches allow a higher learning rate.
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(scaled_lr, 0.9))  # Horovod: averages the gradients.
model.compile(optimizer, "sparse_categorical_crossentropy", weighted_metrics=["accuracy"],
              jit_compile=False)  # Horovod: by default, XLA cannot compile Horovod's operations.
mine = slice(hvd.rank(), None, hvd.size())  # Horovod: each validation image on one worker.
history = model.fit(
    batches(), steps_per_epoch=steps, epochs=args.epochs, shuffle=False,
    validation_data=(val_images[mine], val_labels[mine]), verbose=2 if hvd.rank() == 0 else 0,  # Horovod: one prints.
    callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0),  # Horovod: all begin with the weights of rank 0.
               hvd.callbacks.MetricAverageCallback(),  # Horovod: loss and accuracy of all workers' images.
               hvd.callbacks.LearningRateWarmupCallback(  # Horovod: begins with the learning rate of one worker.
                   scaled_lr, args.warmup_epochs, steps_per_epoch=steps)])

if hvd.rank() == 0:  # Horovod: all workers have the same model; one evaluates it and writes it.
    loss, accuracy = model.evaluate(test_images, test_labels, verbose=0)
    print(f"{hvd.size()} workers, {steps} steps per epoch, test loss {loss:.4f}, test accuracy {accuracy:.4f}")
    model.save("lab10_caltech.keras")
