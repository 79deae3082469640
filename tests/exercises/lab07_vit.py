"""Made-up records of lab 7, and typical mistakes."""

from __future__ import annotations

import numpy as np

from labs.exercises.lab07_vit import reference_attention, reference_patches
from tests.exercises.planted import made

VIT = {"parameters": 114_250}

RECORDS = [
    made("lab07", images_per_sec=100, metrics={"parameters": 6_858}, width=16),
    made("lab07", 4, 60, metrics={"parameters": 6_858}, width=16, batch_size=8, traffic=False),
    made("lab07", images_per_sec=100, metrics=VIT), made("lab07", 4, 170, metrics=VIT, batch_size=8, backend="gloo"),
]

WRONG = [
    ("q1", lambda runs, right: 20 * right, "far off; check the units, and which number is divided by which"),
    ("q1", lambda runs, right: right / 32, "the number of bytes of one step"),
    ("q1", lambda runs, right: 1000 * 32 * 32 * 3 * 4 / 1e6, "the images, which are not exchanged"),
    ("q1", lambda runs, right: 8 * right, "in bits; a byte has 8 bits"),
    ("q2", lambda runs, right: 1 / right, "upside down"),
    ("q3", lambda runs, right: 4, "these workers had fewer images_per_sec"),
]


def by_columns(images, patch):
    """Return patches from top to bottom, then from left to right."""
    tiles = images.shape[1] // patch
    order = np.arange(tiles * tiles).reshape(tiles, tiles).T.ravel()
    return reference_patches(images, patch)[:, order]


def channels_first(images, patch):
    """Return patches whose pixels are sorted by channel."""
    n, side, _, channels = images.shape
    patches = reference_patches(images, patch).reshape(n, -1, patch * patch, channels)
    return patches.swapaxes(2, 3).reshape(n, (side // patch) ** 2, -1)


def softmax_over(axis):
    def attention(q, k, v):
        weights = np.exp(q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1]))
        return weights / weights.sum(axis=axis, keepdims=True) @ v

    return attention


WRONG_CODE = [
    ("patchify", lambda images, patch: images.reshape(len(images), -1), "the shape must be"),
    ("patchify", lambda images, patch: images.reshape(len(images), -1, patch * patch * images.shape[-1]),
     "a patch must be a square of its image"),
    ("patchify", by_columns, "left to right, then down"),
    ("patchify", channels_first, "each with its channels"),
    ("patchify", lambda images, patch: 0 * reference_patches(images, patch), "each value of the images"),
    ("attention", lambda q, k, v: v[0], r"an array \[heads, tokens, size\]"),
    ("attention", lambda q, k, v: v, "weights of one query sum to 1|weighted by the softmax"),
    ("attention", softmax_over(1), "over the keys"),
    ("attention", softmax_over(-1), "exp overflows"),
    ("attention", lambda q, k, v: reference_attention(q * np.sqrt(q.shape[-1]), k, v), "divided by the root of size$"),
    ("attention", lambda q, k, v: reference_attention(q / np.sqrt(q.shape[-1]), k, v), "not by size"),
    ("crossover", lambda m, c, b: m / (c * b / 2), "a byte has 8 bits"),
    ("crossover", lambda m, c, b: 8 * m / (c * b), "saves only half"),
    ("crossover", lambda m, c, b: 32 * m / (c * b), "in each direction, at the same time"),
    ("crossover", lambda m, c, b: m / (c * b), "and the second worker saves half"),
    ("crossover", lambda m, c, b: c * b / 2 / (8 * m), "as long as the images"),
]
