"""Train by ZeRO, stage 1: each worker holds Adam's moments for its part of the weights. Repaired.

    labs launch 2 solutions/debugging/lab13.py
"""

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

IMAGES, PIXELS, STEPS, LEARNING_RATE = 512, 8, 60, 0.05

hvd.init()
tf.config.set_visible_devices([], "GPU")  # So small a problem needs no GPU.
rng = np.random.default_rng(1)
images = rng.normal(size=(IMAGES, PIXELS)).astype("float32")
labels = (images @ np.linspace(-1, 1, PIXELS) > 0).astype("float32")
shard = slice(hvd.rank(), None, hvd.size())

weights = np.zeros(PIXELS, "float32")
part = PIXELS // hvd.size()
mine = slice(part * hvd.rank(), part * (hvd.rank() + 1))
first, second = np.zeros(part, "float32"), np.zeros(part, "float32")  # Adam's moments of this part.


def loss_and_gradient(images, labels):
    outputs = 1 / (1 + np.exp(-images @ weights))
    loss = -np.mean(np.log(np.where(labels == 1, outputs, 1 - outputs)))
    return loss, images.T @ (outputs - labels) / len(labels)


for step in range(1, STEPS + 1):
    _, gradient = loss_and_gradient(images[shard], labels[shard])
    gradient = hvd.reducescatter(tf.constant(gradient), op=hvd.Average).numpy()  # This part of the mean.
    first = 0.9 * first + 0.1 * gradient
    second = 0.999 * second + 0.001 * gradient**2
    update = LEARNING_RATE * first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.999**step)) + 1e-7)
    weights = hvd.allgather(tf.constant(weights[mine] - update)).numpy()  # All parts, by rank.

loss, _ = loss_and_gradient(images, labels)
print(f"rank {hvd.rank()} of {hvd.size()}: loss {loss:.4f}, sum of the weights {weights.sum():+.4f}")
