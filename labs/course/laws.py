"""Amdahl's and Gustafson's laws: what bounds a speedup, and the serial share that a measured one needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from labs.run.errors import LabError


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
    """Return the serial share that Amdahl's law needs for a speedup on n workers; below 0 if the speedup is above n."""
    n, speedup = np.asarray(n, float), np.asarray(speedup, float)
    return (1 / speedup - 1 / n) / (1 - 1 / n)


def gustafson_share(n, speedup):
    """Return the serial share that Gustafson's law needs for a speedup on n workers; below 0 if it is above n."""
    n, speedup = np.asarray(n, float), np.asarray(speedup, float)
    return (n - speedup) / (n - 1)


def fit_amdahl(sizes: Sequence[int], speedups: Sequence[float]) -> float:
    """Return the serial share that best explains speedups in strong scaling (least squares in 1 / speedup).

    Raises:
        LabError: Fewer than two numbers of workers above 1, or a speedup that no serial share explains.
    """
    n, s = _fittable(sizes, speedups)
    return _slope(1 - 1 / n, 1 / s - 1 / n)


def fit_gustafson(sizes: Sequence[int], speedups: Sequence[float]) -> float:
    """Return the serial share that best explains speedups in weak scaling (least squares); errors as `fit_amdahl`."""
    n, s = _fittable(sizes, speedups)
    return _slope(n - 1, n - s)


def _slope(x: np.ndarray, y: np.ndarray) -> float:
    """Return the slope of the line through the origin: a weighted mean of the shares y / x of the points."""
    return float((x * y).sum() / (x * x).sum())


def _fittable(sizes, speedups) -> tuple[np.ndarray, np.ndarray]:
    """Return the points above n = 1, where every law gives 1; raise if a fit to them would be meaningless."""
    n, s = _points(sizes, speedups)
    if beyond := _beyond(n, s):
        raise LabError(beyond)
    if len(np.unique(n)) < 2:
        raise LabError("a law is fitted to speedups of at least two numbers of workers above 1; "
                       "it passes through a single point whether it holds or not")
    return n, s


def _points(sizes, speedups) -> tuple[np.ndarray, np.ndarray]:
    """Return the finite points above n = 1."""
    n, s = np.asarray(sizes, float), np.asarray(speedups, float)
    use = np.isfinite(n) & np.isfinite(s) & (n > 1) & (s > 0)
    if not use.any():
        raise LabError("no speedup of more than one worker; run the sweep with at least two numbers of workers")
    return n[use], s[use]


def _beyond(n: np.ndarray, speedups: np.ndarray) -> str:
    """Return which speedups no serial share from 0 to 1 explains, and where to look; "" if all can be explained."""
    problems = []
    for size, speedup in zip(n, speedups, strict=True):
        if speedup > size * (1 + 1e-9):
            problems.append(f"S({size:g}) = {speedup:.2f} is above {size:g}: no serial share explains it; "
                         "look for what slowed down the base")
        elif speedup < 1 - 1e-9:
            problems.append(f"S({size:g}) = {speedup:.2f} is below 1: no serial share explains it; "
                         "dividing the work costs more than it saves")
    return "; ".join(problems)


LAWS = {"strong": ("Amdahl", amdahl, amdahl_share, fit_amdahl),
        "weak": ("Gustafson", gustafson, gustafson_share, fit_gustafson)}
"""By kind of scaling: the law's name, its speedup, the share that one point needs, the fit to several points."""


def explain(kind: Literal["weak", "strong"], sizes: Sequence[int], speedups: Sequence[float]) -> str:
    """Return a sentence on how well a law explains measured speedups.

    If the law holds, every point needs the same share. A share that changes with n shows that it does not hold.

    Args:
        kind: "strong" for Amdahl's law, "weak" for Gustafson's.
        sizes: Numbers of workers.
        speedups: Their speedups over one worker.
    """
    name, law, share, fit = LAWS[kind]
    n, s = _points(sizes, speedups)
    if beyond := _beyond(n, s):
        return beyond
    shares = ", ".join(f"{each:.2f} at n = {size:g}" for size, each in zip(n, share(n, s), strict=True))
    if len(np.unique(n)) < 2:
        return f"{name} needs s = {shares}: a single point, nothing is tested"
    serial = fit(n.tolist(), s.tolist())
    miss = law(n, serial) / s - 1
    worst = np.abs(miss).argmax()
    return f"{name} needs s = {shares}; the fit, s = {serial:.2f}, is off by {miss[worst]:+.0%} at n = {n[worst]:g}"
