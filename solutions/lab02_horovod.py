"""Lab 2."""

import math

import numpy as np


def q1(runs):
    """Divide throughputs, not total times. Both runs have the same settings."""
    one, many = runs
    return many["timings"]["images_per_sec"] / one["timings"]["images_per_sec"]


def q2(runs):
    """Divide the speedup by the number of workers."""
    return q1(runs) / runs[1]["layout"]["size"]


def q3(runs):
    """A step trains on the batches of all workers."""
    (run,) = runs
    return math.ceil(run["history"][0]["images"] / run["layout"]["global_batch_size"])


def q4(runs):
    """An image is missed by one worker with probability 1 - 1/N, and by all with (1 - 1/N)^N."""
    n = runs[0]["layout"]["size"]
    return 1 - (1 - 1 / n) ** n


def allreduce_mean(values):
    """Every rank gets a copy, as it would on another machine."""
    mean = sum(values) / len(values)
    return [mean.copy() for _ in values]


def shard(indices, rank, size, epoch, seed):
    """The rank decides only which share of the order a worker takes, never the order. Remainder: pad."""
    order = np.random.default_rng([seed, epoch]).permutation(indices)
    padding = -len(order) % size
    return np.concatenate([order, order[:padding]])[rank::size]


def step(model, images, labels, optimizer, hvd):
    """The mean is taken of gradients, between computing and applying them, on every worker and in the same order."""
    import tensorflow as tf

    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.keras.losses.sparse_categorical_crossentropy(labels, model(images)))
    gradients = tape.gradient(loss, model.trainable_variables)
    gradients = [hvd.allreduce(gradient) for gradient in gradients]
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))


bug = {"symptom": "the workers end with different weights", "line": "line 27"}
