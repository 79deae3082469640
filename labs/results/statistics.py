"""Confidence intervals of means, ratios and differences: Student's and Welch's."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return Student's 95 % interval of the mean; NaN for too few values."""
    numbers = np.asarray(values, float)
    if len(numbers) < 2:
        return math.nan, math.nan
    half = half_width(*_spread(numbers))
    return float(numbers.mean() - half), float(numbers.mean() + half)


def geometric_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return Student's 95 % interval of the geometric mean of positive values; NaN for fewer than two."""
    logs = np.log(np.asarray(values, float))
    low, high = interval_of_logs(logs.mean(), *_spread(logs))
    return float(low), float(high)


def interval_of_logs(mean, variance, freedom):
    """Return Student's 95 % interval around a mean of logarithms, converted back from the logarithms."""
    half = half_width(variance, freedom)
    return np.exp(mean - half), np.exp(mean + half)


def ratio(first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray) -> tuple[float, float, float]:
    """Return the ratio of two medians, and Welch's 95 % interval of the ratio of the geometric means."""
    _, low, high = difference(np.log(np.asarray(first, float)), np.log(np.asarray(second, float)))
    return float(np.median(first) / np.median(second)), float(np.exp(low)), float(np.exp(high))


def difference(first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray) -> tuple[float, float, float]:
    """Return the difference of two means and its 95 % interval (Welch 1947); NaN if either has only one value."""
    one, other = np.asarray(first, float), np.asarray(second, float)
    (a, freedom_a), (b, freedom_b) = _spread(one), _spread(other)
    freedom = (a + b) ** 2 / (a**2 / freedom_a + b**2 / freedom_b) if a + b > 0 else 1.0
    centre, half = float(one.mean() - other.mean()), float(half_width(a + b, freedom))
    return centre, centre - half, centre + half


def _spread(values: np.ndarray) -> tuple[float, float]:
    """Return the squared standard error of the mean, and its degrees of freedom."""
    return (float(values.var(ddof=1) / len(values)), len(values) - 1) if len(values) > 1 else (math.nan, math.nan)


def half_width(variance, freedom):
    """Return half the width of Student's 95 % interval.

    Args:
        variance: The squared standard error of an estimate, or an array of them.
        freedom: The degrees of freedom of each.
    """
    from scipy.special import stdtrit  # The quantile alone: scipy.stats takes a second to load.

    return stdtrit(freedom, 0.975) * np.sqrt(variance)
