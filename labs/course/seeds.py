"""Results over seeds: the interval of each setting, and whether two settings differ by more than their seeds do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from labs.results import statistics

if TYPE_CHECKING:
    import pandas as pd


def compared(one: Sequence[float], other: Sequence[float]) -> str:
    """Return a sentence on whether the means of two settings differ by more than their seeds do.

    Args:
        one, other: The results of each setting, one per seed; the interval is Welch's (`statistics.difference`).
    """
    difference, low, high = statistics.difference(one, other)
    means = f"means {np.mean(one):.3f} and {np.mean(other):.3f} differ by {difference:+.3f}"
    if math.isnan(low):
        return f"{means}: one seed has no spread, so it may be noise"
    verdict = "the seeds cannot tell them apart" if low <= 0 <= high else "more than the noise of the seeds"
    return f"{means}, 95 % interval {low:+.3f} to {high:+.3f}: {verdict}"


def spread(frame: pd.DataFrame, by: Sequence[str], value: str) -> pd.DataFrame:
    """Return the mean of a column over the seeds of each setting, and as `_low` and `_high` Student's 95 % interval.

    Args:
        frame: Runs, one row each.
        by: The columns that make a setting; they are the index of the result.
        value: The column. A setting with one seed has no interval (NaN).
    """
    groups = frame.groupby(list(by))[value]
    table = groups.mean().to_frame()
    for end, name in enumerate((f"{value}_low", f"{value}_high")):
        table[name] = groups.agg(lambda values, end=end: statistics.mean_interval(values)[end])
    return table
