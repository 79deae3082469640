"""Accuracies as proportions: their standard errors, and whether two differ by more than noise."""

from __future__ import annotations

import math

NOISE = 2.0
"""A difference of fewer standard errors is noise: about 95 % of the differences of two equal proportions are."""


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
