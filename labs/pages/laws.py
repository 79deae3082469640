"""Amdahl's and Gustafson's laws: what bounds a speedup, and the serial share that a measured one needs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def amdahl(n, serial: float):
    """Return the speedup of n workers on work of fixed size: 1 / (serial + (1 - serial) / n).

    Source: Amdahl, "Validity of the single processor approach to achieving large scale computing capabilities", 1967.

    Args:
        n: Number of workers, or an array of them.
        serial: Share of one worker's time that cannot be divided among workers: from 0 to 1.
    """
    return 1 / (serial + (1 - serial) / np.asarray(n, float))


def gustafson(n, serial: float):
    """Return the speedup of n workers on work that grows with n: n - serial * (n - 1).

    Source: Gustafson, "Reevaluating Amdahl's law", Communications of the ACM 31(5), 1988.

    Args:
        n: Number of workers, or an array of them.
        serial: Share of the time on n workers that is not spent in parallel: from 0 to 1.
    """
    n = np.asarray(n, float)
    return n - serial * (n - 1)


def amdahl_share(n, speedup):
    """Return the serial share that Amdahl's law needs for a speedup on n workers: the Karp-Flatt metric.

    It is below 0 if the speedup is above n, and above 1 if it is below 1. Source: Karp and Flatt, "Measuring parallel
    processor performance", Communications of the ACM 33(5), 1990.
    """
    n, speedup = np.asarray(n, float), np.asarray(speedup, float)
    return (1 / speedup - 1 / n) / (1 - 1 / n)


def gustafson_share(n, speedup):
    """Return the serial share that Gustafson's law needs for a speedup on n workers; below 0 if it is above n.

    With the efficiency E it is (1 - E) n / (n - 1): if the lost share 1 - E is the same on every n, as with an exchange
    that takes a constant part of each step, it falls as n grows.
    """
    n, speedup = np.asarray(n, float), np.asarray(speedup, float)
    return (n - speedup) / (n - 1)


def ring_share(compute, nbytes, bandwidth):
    """Return the s with which a ring of bandwidth alone scales strongly, exactly as Amdahl's law: 2 M / (BW c).

    T(n) = c / n + 2 (n - 1) M / (n BW) = c (s + (1 - s) / n). It may be above 1: then the exchange takes longer than
    the computation that it divides.

    Args:
        compute: c, the seconds of a step of one worker.
        nbytes: M, the bytes of its gradients.
        bandwidth: BW, bytes per second of a worker's link.
    """
    return 2 * nbytes / (bandwidth * compute)


def fit_amdahl(sizes: Sequence[int], speedups: Sequence[float]) -> float:
    """Return the serial share that best explains speedups in strong scaling (least squares in 1 / speedup).

    One point determines it whether the law holds or not; beyond the law the share is below 0 or above 1.
    """
    n, speedup = np.asarray(sizes, float), np.asarray(speedups, float)
    return slope(1 - 1 / n, 1 / speedup - 1 / n)


def slope(x: np.ndarray, y: np.ndarray) -> float:
    """Return the slope of the line through the origin: a weighted mean of the shares y / x of the points."""
    return float((x * y).sum() / (x * x).sum())
