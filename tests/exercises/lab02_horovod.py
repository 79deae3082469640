"""Made-up records of lab 2, and typical mistakes."""

from __future__ import annotations

import math

import numpy as np

from tests.exercises.planted import made, totals

RECORDS = [
    made("lab02", images_per_sec=100), made("lab02", 4, 230),
]

WRONG = [
    ("q1", lambda runs, right: 1 / right, r"throughput\(1\) / throughput\(4\), upside down"),
    ("q1", lambda runs, right: totals(runs)[0] / totals(runs)[1], "which are mostly start-up and first epoch"),
    ("q1", lambda runs, right: right / 4, "that is the scaling efficiency"),
    ("q1", lambda runs, right: 0.5, "below 1, unlike your runs: is it inverted"),
    ("q2", lambda runs, right: 4 * right, "that is the speedup"),
    ("q3", lambda runs, right: math.ceil(1000 / 32), "what one worker alone would take"),
    ("q3", lambda runs, right: 1000 / 128, "not rounded up"),
    ("q4", lambda runs, right: 1 - right, "the share that no worker sees"),
    ("q4", lambda runs, right: 1 / 4, "the share of one worker; the others see some"),
]


def added_into_the_first(values):
    total = values[0]
    for value in values[1:]:
        total += value
    return [total / len(values)] * len(values)


def shuffled(indices, *seed):
    return np.random.default_rng(seed).permutation(indices)


def even(order, rank, size):
    return order[rank:len(order) - len(order) % size:size]


def padded(order, rank, size):
    return np.concatenate([order, order[:-len(order) % size]])[rank::size]


def dropping_in_silence(indices, rank, size, epoch, seed):
    """Remainder: pad."""
    return even(shuffled(indices, seed, epoch), rank, size)


def padding_in_silence(indices, rank, size, epoch, seed):
    """Remainder: drop."""
    return padded(shuffled(indices, seed, epoch), rank, size)


def shuffled_in_itself(indices, rank, size, epoch, seed):
    return shuffled(padded(indices, rank, size), seed, epoch)


def padded_order(*seeds):
    """Return a `shard` whose order depends on some of its arguments."""
    def shard(indices, rank, size, epoch, seed):
        values = {"rank": rank, "epoch": epoch, "seed": seed}
        return padded(shuffled(indices, *(values[name] for name in seeds)), rank, size)

    return shard


WRONG_CODE = [
    ("allreduce_mean", lambda values: [sum(values)] * len(values), "that is the sum, not the mean"),
    ("allreduce_mean", lambda values: sum(values) / len(values), "not one array per rank"),
    ("allreduce_mean", lambda values: [values[0]] * len(values), "not the mean of all ranks, element by element"),
    ("allreduce_mean", lambda values: [sum(values) / len(values), *values[1:]], "do not all hold the same"),
    ("allreduce_mean", added_into_the_first, "changed its argument"),
    ("shard", lambda indices, rank, size, epoch, seed: shuffled(indices, seed, epoch)[rank::size], "unequal numbers"),
    ("shard", lambda indices, rank, size, epoch, seed: shuffled(indices, seed, epoch), "another number of images than"),
    ("shard", padded_order("seed", "epoch", "rank"), "not disjoint: .* Do all ranks cut the same order"),
    ("shard", lambda indices, rank, size, epoch, seed: padded(shuffled(range(len(indices)), seed, epoch), rank, size),
     "not one of the indices"),
    ("shard", dropping_in_silence, "images are left out, but the remainder is to be padded"),
    ("shard", padding_in_silence, "the remainder is to be dropped"),
    ("shard", padded_order("seed"), "each epoch needs a new order"),
    ("shard", padded_order("epoch"), "the order must depend on the seed"),
    ("shard", lambda indices, rank, size, epoch, seed: padded(indices, rank, size), "they are not shuffled"),
    ("shard", shuffled_in_itself, "those are the images of epoch 0 in another order"),
]
