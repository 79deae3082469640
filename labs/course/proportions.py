"""Accuracies as proportions: their standard errors, and whether two differ by more than noise."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

NOISE = 2.0
"""A difference of fewer standard errors is noise: about 95 % of the differences of two equal proportions are."""
LEVEL = 0.05
"""Significance level: a paired difference with a larger p-value counts as noise."""


def standard_error(share: float, images: int) -> float:
    """Return the standard error of a share of right answers on independent images, sqrt(p (1 - p) / n).

    Source: the variance of a binomial proportion; NIST/SEMATECH e-Handbook of Statistical Methods, 7.2.4.
    """
    return math.sqrt(share * (1 - share) / images)


def difference(one: float, other: float, images: int, other_images: int | None = None) -> float:
    """Return `one - other` in standard errors of the difference, sqrt(error(one)^2 + error(other)^2).

    This is exact for two independent sets of images. On the same images two models tend to make the same errors;
    the true standard error is then smaller, and this measure is conservative.

    Args:
        one, other: Shares of right answers.
        images: Number of images behind `one`.
        other_images: Number of images behind `other`; by default the same.
    """
    error = math.hypot(standard_error(one, images), standard_error(other, other_images or images))
    if not error:
        return math.copysign(math.inf, one - other) if one != other else 0.0
    return (one - other) / error


def compared(one: float, other: float, images: int, other_images: int | None = None) -> str:
    """Return a sentence on whether two accuracies differ by more than the noise of their images."""
    errors = abs(difference(one, other, images, other_images))
    verdict = "more than noise" if errors > NOISE else "within noise"
    return f"{one:.3f} and {other:.3f} differ by {errors:.1f} standard errors: {verdict}"


class Paired(NamedTuple):
    """Two models on the same images."""

    only_one: int
    """Images that only the first model gets right."""
    only_other: int
    """Images that only the second model gets right."""
    difference: float
    """Accuracy of the first minus that of the second."""
    error: float
    """The standard error of the difference."""
    p: float
    """The p-value: the probability of a split at least this uneven if the models were equally good."""

    def __str__(self) -> str:
        verdict = "more than noise" if self.p < LEVEL else "within noise"
        chance = f"p = {self.p:.2g}" if self.p >= 1e-4 else "p < 0.0001"
        return (f"{self.difference:+.3f} (standard error {self.error:.3f}): {self.only_one} images right only with the "
                f"first, {self.only_other} only with the second, {chance}: {verdict}")


def paired(one: ArrayLike, other: ArrayLike) -> Paired:
    """Compare two models on the same images by McNemar's exact test.

    Images that both get right, or both get wrong, say nothing about which is better. If the two are equally good, each
    of the other images is as likely to favour the first as the second. Source: McNemar 1947, Psychometrika 12;
    Dietterich 1998, Approximate Statistical Tests for Comparing Supervised Classification Learning Algorithms, section
    3.1. The standard error is that of a difference of correlated proportions: Fleiss, Statistical Methods for Rates and
    Proportions, 3rd edition, 2003, section 13.1.

    Args:
        one, other: Whether each model is right on each image, in the same order [n].
    """
    from scipy.special import bdtr  # The distribution alone: scipy.stats takes a second to load.

    first, second = np.asarray(one, bool), np.asarray(other, bool)
    b, c, n = int((first & ~second).sum()), int((second & ~first).sum()), len(first)
    p = min(1.0, 2 * float(bdtr(min(b, c), b + c, 0.5))) if b + c else 1.0
    return Paired(b, c, (b - c) / n, math.sqrt(b + c - (b - c) ** 2 / n) / n, p)
