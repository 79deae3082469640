"""Lab 8 as one file: the age of a face, and the throughput in images per second.

    python examples/lab08_throughput.py
    horovodrun -np 2 python examples/lab08_throughput.py
    mpirun -np 2 python examples/lab08_throughput.py
    sbatch jobs/example.sh examples/lab08_throughput.py

Two workers compute what one computes with twice the batch size, up to rounding. The curve differs from that of
`labs run lab08_throughput`, which has other faces.
"""

import argparse
import itertools
import math
import time
from pathlib import Path

import horovod_keras3 as hvd  # Horovod: its Keras layer, for Keras 3.
import numpy as np
import tensorflow as tf
from PIL import Image

SEED = 1
parser = argparse.ArgumentParser(description="Estimate ages, and measure the throughput.")
parser.add_argument("--data", help="a folder of AGE_*.jpg, as UTKFace has them; by default simple faces")
parser.add_argument("--batch-size", type=int, default=16, help="images per worker and step")
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--base-lr", type=float, default=0.001, help="learning rate for 16 images per step")
args = parser.parse_args()

hvd.init()  # Horovod: finds the other workers; from here on rank() and size() are known.
gpus = tf.config.list_physical_devices("GPU")
tf.config.set_visible_devices(gpus[hvd.local_rank():][:1], "GPU")  # Horovod: each worker of a node has its own GPU.
tf.keras.utils.set_random_seed(SEED)

if args.data:
    files = sorted(Path(args.data).glob("*.jpg"))
    ages = np.array([float(file.name.split("_")[0]) for file in files])
    photos = np.stack([np.asarray(Image.open(file).convert("RGB").resize((48, 48))) for file in files])
else:  # Simple faces: with age the hair turns grey, and lines appear on the forehead.
    rng, (y, x) = np.random.default_rng(SEED), np.mgrid[-24:24, -24:24]
    ages, grounds = rng.uniform(15, 85, 500), rng.integers(0, 256, (500, 1, 1))
    lines = (abs(x) < 8) & (y % 2 == 0) & (y >= -10) & (y < ages[:, None, None] / 8 - 10)
    hair = np.where(np.hypot(x, y) < 20, 20 + 2 * ages[:, None, None], grounds)
    grey = np.where(lines, 120, np.where(np.hypot(x, y - 4) < 16, 200, hair))
    photos = (grey[..., None] + rng.normal(0, 8, (500, 48, 48, 3))).clip(0, 255).astype("uint8")
test = np.arange(len(photos)) % 5 == 0
images, labels, test_images, test_labels = photos[~test], ages[~test], photos[test], ages[test]
global_batch_size = args.batch_size * hvd.size()  # Horovod: a step uses the images of all workers.
steps = math.ceil(len(images) / global_batch_size)  # Horovod: equal on all workers; else one would wait.
scaled_lr = args.base_lr * math.sqrt(global_batch_size / 16)  # Horovod: it follows the images of all workers.


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
    layers.Input(images.shape[1:]), layers.Rescaling(1 / 127.5, offset=-1),
    *(layers.Conv2D(channels, 3, strides=strides, padding="same", activation="relu")
      for channels, strides in ((16, 2), (32, 2), (64, 2), (128, 2), (128, 1))),
    layers.GlobalAveragePooling2D(), layers.Dense(1, bias_initializer=tf.keras.initializers.Constant(0.4)),
    layers.Rescaling(100),  # The layer before it estimates centuries, and begins with 40 years.
])
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(scaled_lr))  # Horovod: averages the gradients.
model.compile(optimizer, "mse", weighted_metrics=["mae"],
              jit_compile=False)  # Horovod: by default, XLA cannot compile Horovod's operations.
ticks = []  # The start and the end of each epoch; in the first one TensorFlow also builds the training step.
history = model.fit(
    batches(), steps_per_epoch=steps, epochs=args.epochs, shuffle=False,
    verbose=2 if hvd.rank() == 0 else 0,  # Horovod: one worker prints.
    callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0),  # Horovod: all begin with the weights of rank 0.
               hvd.callbacks.MetricAverageCallback(),  # Horovod: loss and error of all workers' images.
               tf.keras.callbacks.LambdaCallback(on_epoch_begin=lambda *_: ticks.append(time.perf_counter()),
                                                 on_epoch_end=lambda *_: ticks.append(time.perf_counter()))])

if hvd.rank() == 0:  # Horovod: all workers have the same model; one evaluates it and writes it.
    loss, mae = model.evaluate(test_images, test_labels, verbose=0)
    print(f"{hvd.size()} workers, {steps} steps per epoch, test loss {loss:.4f}, test mae {mae:.4f}")
    model.save("lab08_throughput.keras")
    print(f"the last epoch: {len(images) / (ticks[-1] - ticks[-2]):.0f} images/s of all workers together")
