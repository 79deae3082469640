"""Handwritten digits on many workers: `examples/plain/train.py` with the ten lines of lab 2.

    horovodrun -np 2 python train.py
"""

import argparse
import itertools

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import horovod_keras3 as hvd  # Horovod: its Keras layer, for Keras 3.

SEED = 1
parser = argparse.ArgumentParser(description="Train on handwritten digits.")
parser.add_argument("--batch-size", type=int, default=32, help="images per worker and step")
parser.add_argument("--base-lr", type=float, default=0.001, help="learning rate of one worker")
parser.add_argument("--epochs", type=int, default=10)
args = parser.parse_args()

hvd.init()  # Horovod: find the other workers.
tf.config.set_visible_devices(tf.config.list_physical_devices("GPU")[hvd.local_rank():][:1], "GPU")  # Horovod: my GPU.
tf.keras.utils.set_random_seed(SEED)
digits, numbers = load_digits().images[..., None], load_digits().target  # 1,797 images of 8 x 8 pixels.
test = np.arange(len(digits)) % 5 == 0
images, labels = digits[~test], numbers[~test]
steps = len(images) // (args.batch_size * hvd.size())  # Horovod: a step has the batches of all workers.


def batches():
    """Yield the images and labels of each step, in a new order in each epoch; a remainder is left out."""
    for epoch in itertools.count():
        order = np.random.default_rng([SEED, epoch]).permutation(len(images))
        order = order[hvd.rank()::hvd.size()]  # Horovod: my shard of the common order.
        for rows in order[:steps * args.batch_size].reshape(steps, args.batch_size):
            yield images[rows], labels[rows]


layers = tf.keras.layers
model = tf.keras.Sequential([
    layers.Input((8, 8, 1)), layers.Rescaling(1 / 16), layers.Conv2D(16, 3, activation="relu"),
    layers.Conv2D(32, 3, activation="relu"), layers.Flatten(), layers.Dense(10, activation="softmax"),
])
optimizer = tf.keras.optimizers.Adam(args.base_lr * hvd.size())  # Horovod: fewer steps, each of a larger batch.
optimizer = hvd.DistributedOptimizer(optimizer)  # Horovod: average the gradients.
model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(batches(), steps_per_epoch=steps, epochs=args.epochs, shuffle=False,
          callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)],  # Horovod: equal weights at the start.
          verbose=0 if hvd.rank() else 2)  # Horovod: one worker prints its epochs.
if hvd.rank() == 0:  # Horovod: all have the same model; one evaluates and writes it.
    loss, accuracy = model.evaluate(digits[test], numbers[test], verbose=0)
    print(f"{steps} steps per epoch, test loss {loss:.5f}, test accuracy {accuracy:.4f}")
    model.save("train.keras")
