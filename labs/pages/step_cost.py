"""Cost of a training step of one worker: a fixed time, and a time per image, fitted to measured steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from labs.results import noise
from labs.run.errors import LabError


class Estimate(NamedTuple):
    """A fitted value and its 95 % interval; NaN where two measurements leave no error to estimate it from."""

    value: float
    low: float
    high: float


class StepCost(NamedTuple):
    """The line t(b) = a + c b."""

    fixed: Estimate
    """a: seconds of a step that do not depend on its batch."""
    per_image: Estimate
    """c: seconds per image."""

    def seconds(self, batch_size):
        """Return the seconds of a step; arrays give arrays."""
        return self.fixed.value + self.per_image.value * batch_size


def fit(batch_sizes: Sequence[float] | np.ndarray, seconds: Sequence[float] | np.ndarray) -> StepCost:
    """Fit the line a + c b to measured steps by weighted least squares, with Student's 95 % intervals.

    The error of a measured time grows with the time, so the sum of ((t - a - c b) / t)**2 is minimized: each point has
    the weight 1 / t**2. With W the diagonal matrix of the weights and X the columns 1 and b, the covariance of (a, c)
    is s**2 (X' W X)**-1, where s**2 is that sum divided by the degrees of freedom, points - 2. Source: Draper and
    Smith, "Applied Regression Analysis", 3rd edition, 1998, chapter 9.

    All steps must have the same number of steps per return to Python, or there is no single a. The points must be
    independent: one per batch size, such as a median, not one per step.

    Args:
        batch_sizes: Images per step of each measurement [n].
        seconds: Measured time of a step [n].

    Raises:
        LabError: The times are not positive numbers, or belong to fewer than two batch sizes, or the line is impossible
            because c is negative, or a and its whole interval. An a below zero whose interval reaches zero is too
            small to tell from zero.
    """
    b, t = np.asarray(batch_sizes, float), np.asarray(seconds, float)
    if b.shape != t.shape or b.ndim != 1 or not (np.isfinite(t).all() and (t > 0).all()):
        raise LabError("a fit needs one positive time of a step per batch size")
    if len(np.unique(b)) < 2:
        raise LabError("any number of lines go through the steps of a single batch size; measure a second one")
    columns = np.stack([np.ones_like(b), b], axis=1) / t[:, None]  # Divided by t, all errors have the same size.
    (a, c), *_ = np.linalg.lstsq(columns, np.ones_like(t), rcond=None)
    freedom = len(b) - 2
    misfit = float(((columns @ (a, c) - 1) ** 2).sum())
    covariance = np.linalg.inv(columns.T @ columns) * (misfit / freedom if freedom else math.nan)
    half = noise.half_width(np.diag(covariance), freedom)
    cost = StepCost(*(Estimate(float(value), float(value - width), float(value + width))
                      for value, width in zip((a, c), half, strict=True)))
    impossible = a < 0 and not cost.fixed.high >= 0  # Two points have no interval: NaN.
    if impossible or c < 0:
        raise LabError(f"the line has {'a' if impossible else 'c'} < 0 (a = {1e3 * a:.3g} ms, c = {1e3 * c:.3g} ms per "
                       "image), but no part of a step takes less than zero time. Use measured steps, train_seconds / "
                       "steps of the epochs after the first: batch size / images_per_sec is not the time of a step if "
                       "the last batch is smaller or padded. If you did, another program was running: measure again")
    return cost
