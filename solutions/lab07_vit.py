"""Lab 7."""

import numpy as np


def q1(runs):
    """In each step, each of n workers sends 2 (n - 1) / n times the gradients. Images are not sent."""
    (run,) = runs
    gradients = 4 * run["metrics"]["parameters"]
    return 2 * (run["layout"]["size"] - 1) * gradients * run["history"][0]["steps"] / 1e6


def q2(runs):
    """Both runs have the same global batch."""
    one, many = runs
    return many["timings"]["images_per_sec"] / one["timings"]["images_per_sec"]


def q3(runs):
    """For a network that is small enough, one worker is the fastest."""
    return max(runs, key=lambda run: run["timings"]["images_per_sec"])["layout"]["size"]


def patchify(images, patch):
    """Each side becomes (tiles, pixels of a tile); the tiles' axes move to the front."""
    n, side, _, channels = images.shape
    tiles = side // patch
    cut = np.reshape(images, (n, tiles, patch, tiles, patch, channels))
    return cut.transpose(0, 1, 3, 2, 4, 5).reshape(n, tiles * tiles, patch * patch * channels)


def attention(q, k, v):
    """`@` multiplies the matrices of each head; the softmax is over the last axis, the keys."""
    scores = q @ np.swapaxes(k, 1, 2) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


def crossover(gradient_bytes, image_seconds, global_batch):
    """8 M bits must cross in the time that the second worker saves, c B / 2."""
    return 8 * gradient_bytes / (image_seconds * global_batch / 2)


bug = {"symptom": "the global batch grows with the workers", "line": "line 21"}
