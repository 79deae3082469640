"""Cost of a step; Amdahl's and Gustafson's laws: what bounds a speedup, and the serial share that it needs; a queue.

Sources: Amdahl, "Validity of the single processor approach to achieving large scale computing capabilities", 1967;
Gustafson, "Reevaluating Amdahl's law", CACM 31(5), 1988; Karp and Flatt, "Measuring parallel processor performance",
CACM 33(5), 1990. Numbers of workers `n` and speedups may be arrays.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from labs.results import noise
from labs.run.errors import LabError


def amdahl(n, serial: float):
    """Return the speedup of n workers on fixed work, of which the share `serial` cannot be divided (0 to 1)."""
    return 1 / (serial + (1 - serial) / np.asarray(n, float))


def gustafson(n, serial: float):
    """Return the speedup of n workers on work that grows with n; `serial`: the share of their time not in parallel."""
    n = np.asarray(n, float)
    return n - serial * (n - 1)


def amdahl_share(n, speedup):
    """Return the serial share that Amdahl's law needs for a speedup on n workers: the Karp-Flatt metric."""
    n, speedup = np.asarray(n, float), np.asarray(speedup, float)
    return (1 / speedup - 1 / n) / (1 - 1 / n)


def gustafson_share(n, speedup):
    """Return the serial share that Gustafson's law needs for a speedup on n workers; below 0 if it is above n."""
    n, speedup = np.asarray(n, float), np.asarray(speedup, float)
    return (n - speedup) / (n - 1)


def ring_share(compute, nbytes, bandwidth):
    """Return the s with which a ring of bandwidth alone scales strongly, exactly as Amdahl's law: 2 M / (BW c).

    A step computes for c seconds / n and exchanges M bytes over links of BW bytes per second: T(n) = c / n +
    2 (n - 1) M / (n BW) = c (s + (1 - s) / n). Above 1 the exchange takes longer than the computation that it divides.
    """
    return 2 * nbytes / (bandwidth * compute)


def fit_amdahl(sizes: Sequence[int], speedups: Sequence[float]) -> float:
    """Return the serial share that best explains speedups in strong scaling (least squares in 1 / speedup)."""
    n, speedup = np.asarray(sizes, float), np.asarray(speedups, float)
    return slope(1 - 1 / n, 1 / speedup - 1 / n)


def slope(x: np.ndarray, y: np.ndarray) -> float:
    """Return the slope of the line through the origin: a weighted mean of the shares y / x of the points."""
    return float((x * y).sum() / (x * x).sum())


class Estimate(NamedTuple):
    """A fitted value and its 95 % interval; NaN where two measurements leave no error to estimate it from."""

    value: float
    low: float
    high: float


class StepCost(NamedTuple):
    """The line t(b) = a + c b: seconds of a step that do not depend on its batch, and seconds per image."""

    fixed: Estimate
    per_image: Estimate

    def seconds(self, batch_size):
        """Return the seconds of a step; arrays give arrays."""
        return self.fixed.value + self.per_image.value * batch_size


def fit_step_cost(batch_sizes: Sequence[float] | np.ndarray, seconds: Sequence[float] | np.ndarray) -> StepCost:
    """Fit the line a + c b to measured steps, one time per batch size, with Student's 95 % intervals.

    The error of a measured time grows with the time, so each point has the weight 1 / t**2 (W). With X the columns 1
    and b, the covariance of (a, c) is (X' W X)**-1 times the weighted sum of squares / (points - 2). Source: Draper and
    Smith, "Applied Regression Analysis", 3rd edition, 1998, chapter 9.

    Raises:
        LabError: There are fewer than two batch sizes, or the line is impossible because c is negative, or a and its
            whole interval. An a below zero whose interval reaches zero is too small to tell from zero.
    """
    b, t = np.asarray(batch_sizes, float), np.asarray(seconds, float)
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
    if c < 0 or (a < 0 and not cost.fixed.high >= 0):  # Two points have no interval: NaN.
        raise LabError(f"the line is impossible (a = {1e3 * a:.3g} ms, c = {1e3 * c:.3g} ms per image): no part of a "
                       "step takes less than zero time. Use measured steps, train_seconds / steps of the epochs after "
                       "the first; if you did, another program was running: measure again")
    return cost


def planned_starts(jobs: Sequence[tuple[int, int]], nodes: int) -> list[int]:
    """Return each job's start by the rule of a queue with backfill: the first in line is served first.

    In the order of the queue, each job (nodes, time limit) gets the earliest start at which enough nodes stay free
    until its limit, given the jobs before it. So a job starts before an earlier one only if it delays none.
    """
    placed: list[tuple[int, int, int]] = []
    for wanted, limit in jobs:
        candidates = sorted({0, *(end for _, end, _ in placed)})
        start = next(time for time in candidates if all(
            sum(count for begin, end, count in placed if begin <= moment < end) + wanted <= nodes
            for moment in (time, *(begin for begin, _, _ in placed if time < begin < time + limit))))
        placed.append((start, start + limit, wanted))
    return [start for start, _, _ in placed]
