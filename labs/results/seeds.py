"""Comparison of two settings over seeds: whether their difference exceeds the spread between seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from labs.results import statistics


def compared(one: Sequence[float], other: Sequence[float]) -> str:
    """Return a sentence on whether the means of two settings differ by more than their seeds do.

    Args:
        one, other: The results of each setting, one per seed; the interval is Welch's (`statistics.difference`).
    """
    difference, low, high = statistics.difference(one, other)
    means = f"means {np.mean(one):.3f} and {np.mean(other):.3f} differ by {difference:+.3f}"
    if math.isnan(low):
        return f"{means}: one seed has no spread, so it may be noise"
    verdict = "the seeds cannot tell them apart" if low <= 0 <= high else "more than the seeds do"
    return f"{means}, 95 % interval {low:+.3f} to {high:+.3f}: {verdict}"
