"""Lab 2 as one file: handwritten digits on one worker or on many, with plain Keras and Horovod.

    python examples/lab02_horovod.py
    horovodrun -np 2 python examples/lab02_horovod.py
    mpirun -np 2 python examples/lab02_horovod.py
    sbatch jobs/example.sh examples/lab02_horovod.py

Two workers compute what one computes with twice the batch size and twice the learning rate, up to rounding. The curve
differs from that of `labs run lab02_horovod`, whose network is larger and has dropout.
"""

import argparse
import itertools
import math

import horovod_keras3 as hvd  # Horovod: its Keras layer, for Keras 3.
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

SEED = 1
parser = argparse.ArgumentParser(description="Train on handwritten digits.")
parser.add_argument("--data", help="the file mnist.npz; by default 1,797 digits of 8 x 8 pixels from scikit-learn")
parser.add_argument("--batch-size", type=int, default=32, help="images per worker and step")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--base-lr", type=float, default=0.001, help="learning rate of one worker")
args = parser.parse_args()

hvd.init()  # Horovod: finds the other workers; from here on rank() and size() are known.
gpus = tf.config.list_physical_devices("GPU")
tf.config.set_visible_devices(gpus[hvd.local_rank():][:1], "GPU")  # Horovod: each worker of a node has its own GPU.
tf.keras.utils.set_random_seed(SEED)

if args.data:
    with np.load(args.data) as file:
        images, labels, test_images, test_labels = (file[name] for name in ("x_train", "y_train", "x_test", "y_test"))
else:
    digits, numbers = load_digits().images * 15.9, load_digits().target
    test = np.arange(len(digits)) % 5 == 0
    images, labels, test_images, test_labels = digits[~test], numbers[~test], digits[test], numbers[test]
images, test_images = (pixels[..., None].astype("uint8") for pixels in (images, test_images))

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


layers = tf.keras.layers
model = tf.keras.Sequential([
    layers.Input(images.shape[1:]), layers.Rescaling(1 / 255), layers.Conv2D(16, 3, strides=2, activation="relu"),
    layers.Conv2D(32, 3, strides=2, activation="relu"), layers.Flatten(), layers.Dense(10, activation="softmax"),
])
optimizer = tf.keras.optimizers.Adam(args.base_lr * hvd.size())  # Horovod: larger batches allow a higher learning rate.
optimizer = hvd.DistributedOptimizer(optimizer)  # Horovod: each step applies the mean of all workers' gradients.
model.compile(optimizer, "sparse_categorical_crossentropy", weighted_metrics=["accuracy"],
              jit_compile=False)  # Horovod: by default, XLA cannot compile Horovod's operations.
history = model.fit(
    batches(), steps_per_epoch=steps, epochs=args.epochs, shuffle=False,
    verbose=2 if hvd.rank() == 0 else 0,  # Horovod: one worker prints.
    callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0),  # Horovod: all begin with the weights of rank 0.
               hvd.callbacks.MetricAverageCallback()])  # Horovod: loss and accuracy of all workers' images.

if hvd.rank() == 0:  # Horovod: all workers have the same model; one evaluates it and writes it.
    loss, accuracy = model.evaluate(test_images, test_labels, verbose=0)
    print(f"{hvd.size()} workers, {steps} steps per epoch, test loss {loss:.4f}, test accuracy {accuracy:.4f}")
    model.save("lab02_horovod.keras")
