"""Whether two accuracies differ by more than chance: standard errors of proportions, intervals over seeds.

A difference has two sources of chance. Other test images would give other accuracies: `compare_accuracies`. Another
seed would give another network: `compare_seeds`. Each function judges one of them, and its text says which.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from labs.report import scaling

LIMIT = 2.0
"""Standard errors that a difference must exceed to count as more than noise: about 95 % of chance differences do not."""


@dataclasses.dataclass(frozen=True)
class Accuracies:
    """Two accuracies on as many test images."""

    first: float
    second: float
    images: int
    """Test images of each."""

    @property
    def standard_error(self) -> float:
        """Of the difference, if both networks were equally good (two-proportion z-test, pooled).

        Two networks judged on the same images tend to fail on the same ones, so this is an upper bound for them.
        """
        pooled = (self.first + self.second) / 2
        return math.sqrt(2 * pooled * (1 - pooled) / self.images)

    @property
    def standard_errors(self) -> float:
        """How many standard errors lie between the two."""
        difference = abs(self.first - self.second)
        return difference / self.standard_error if difference else 0.0

    @property
    def noise(self) -> bool:
        """Whether chance alone gives such a difference easily."""
        return self.standard_errors <= LIMIT

    def __str__(self) -> str:
        verdict = (f"within noise (at most {LIMIT:g})" if self.noise else
                   "more than the choice of test images explains")
        return (f"{self.first:.3f} against {self.second:.3f} on {self.images:,} images: "
                f"{self.standard_errors:.1f} standard errors of the difference, {verdict}")


def compare_accuracies(first: float, second: float, images: int) -> Accuracies:
    """Compare two accuracies, as shares from 0 to 1, by the number of test images behind each."""
    return Accuracies(first, second, images)


@dataclasses.dataclass(frozen=True)
class Seeds:
    """Two settings, each trained with several seeds."""

    first: float
    """Mean over the seeds."""
    second: float
    counts: tuple[int, int]
    low: float
    """Lower end of the 95 % interval of the difference of the means; NaN for a single seed."""
    high: float

    @property
    def noise(self) -> bool:
        """Whether the interval contains 0, or there is none."""
        return not (self.low > 0 or self.high < 0)

    def __str__(self) -> str:
        first, second = self.counts
        seeds = f"{first} seeds each" if first == second else f"{first} and {second} seeds"
        difference = f"{self.first:.3f} against {self.second:.3f}, means of {seeds}: difference " \
                     f"{self.first - self.second:+.3f}"
        if math.isnan(self.low):
            return f"{difference}; one seed has no spread, so nothing can be said about chance"
        verdict = ("which contains 0: these seeds cannot tell them apart" if self.noise else
                   "which does not contain 0: more than the seeds explain")
        return f"{difference}, 95 % interval [{self.low:+.3f}, {self.high:+.3f}], {verdict}"


def compare_seeds(first: Sequence[float], second: Sequence[float]) -> Seeds:
    """Compare two settings by the results of several seeds each: Welch's 95 % interval of the difference (1947)."""
    _, low, high = scaling.difference(first, second)
    return Seeds(float(np.mean(first)), float(np.mean(second)), (len(first), len(second)), low, high)
