"""Made-up records of lab 9, and typical mistakes."""

from __future__ import annotations

import math

import numpy as np

from labs.exercises.lab09_fruits import pruned
from labs.results import noise
from tests.exercises.planted import made, totals

RECORDS = [
    made("lab09", trials=3), made("lab09", images_per_sec=100), made("lab09", 4, 260, scaling="none"),
    made("lab09", base_lr=0.1, leak_check=False),
]

WRONG = [
    ("q1", lambda runs, right: totals(runs)[0] / totals(runs)[1], "which are mostly start-up and first epoch"),
    ("q2", lambda runs, right: right | {"run": runs[1]["run"]}, "only its number of workers differs"),
    ("q2", lambda runs, right: right | {"run": runs[0]["run"]}, "so this is its baseline"),
    ("q2", lambda runs, right: right | {"setting": "leak_check"}, "setting: .* does not matter here"),
    ("q3", lambda runs, right: 1 - right, "the share of everything else"),
    ("q3", lambda runs, right: 1.5 * right, "counts the first epoch as one of the others, but it takes longer"),
]


def chi_square(one, other):
    only_one, only_other = np.sum(np.greater(one, other)), np.sum(np.less(one, other))
    differ = only_one + only_other
    return math.erfc(math.sqrt((only_one - only_other) ** 2 / differ / 2)) if differ else 1.0


def unpaired(one, other):
    error = math.sqrt(sum(noise.standard_error(np.mean(each), len(each)) ** 2 for each in (one, other)))
    return math.erfc(abs(np.mean(one) - np.mean(other)) / error / math.sqrt(2)) if error else 1.0


WRONG_CODE = [
    ("median_prune", lambda values, earlier: "no", "the result is a bool"),
    ("median_prune", lambda values, earlier: False, "its best is below the median of the three at epoch 2"),
    ("median_prune", lambda values, earlier: pruned(values, earlier * 2), "two earlier trials are too few"),
    ("median_prune", lambda values, earlier: len(earlier) > 2 and max(values) < np.median(
        [each[len(values) - 1] for each in earlier]), "one epoch is too few"),
    ("median_prune", lambda values, earlier: len(values) > 1 and len(earlier) > 2 and max(values) < np.mean(
        [each[len(values) - 1] for each in earlier]), "the mean does not decide"),
    ("median_prune", lambda values, earlier: pruned([0.0] * (len(values) - 1) + values[-1:], earlier),
     "its newest is below .* but its best so far is not"),
    ("median_prune", lambda values, earlier: pruned([value - 1e-6 for value in values], earlier), "equals the median"),
    ("median_prune", lambda values, earlier: pruned(values, [[each[-1]] * 4 for each in earlier]),
     "at epoch 2"),
    ("mcnemar", lambda one, other: "small", "the result is a number"),
    ("mcnemar", lambda one, other: 0.5 * noise.mcnemar(one, other), "every outcome of the coins is"),
    ("mcnemar", lambda one, other: 2 * noise.mcnemar(one, other), "every outcome of the coins is"),
    ("mcnemar", lambda one, other: max(0.5, noise.mcnemar(one, other) // 1) * noise.mcnemar(one, other)
     if noise.mcnemar(one, other) < 1 else 1, "one direction only"),
    ("mcnemar", chi_square, "chi-square approximation"),
    ("mcnemar", unpaired, "5 images are right only with the first"),
]
