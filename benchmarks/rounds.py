"""Arms in turns, A B C A B C: a machine that grows warm or busy favours none; a round that others disturbed is void."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import psutil
from tqdm import tqdm

Arm = Callable[[], dict[str, Any]]
"""Measures once, in processes of its own, and returns its figures by case."""
OTHERS = 0.05
"""Share of the machine that others may use during a round."""
TRIES = 3
"""Times the rounds asked for that are begun at most."""


def interleaved(arms: Mapping[str, Arm], rounds: int) -> list[dict[str, dict[str, Any]]]:
    """Return for each round that counts what each arm measured.

    Args:
        arms: By name, in the order of a round.
        rounds: That must count.

    Raises:
        SystemExit: The machine was too busy for so many.
    """
    good: list[dict[str, dict[str, Any]]] = []
    with tqdm(total=rounds * len(arms), unit="arm", file=sys.stderr) as bar:
        for _ in range(TRIES * rounds):
            before, found = _clocks(), {}
            for name, arm in arms.items():
                bar.set_postfix_str(name)
                found[name] = arm()
                bar.update()
            if (share := _others(before, _clocks())) <= OTHERS:
                good.append(found)
            else:
                bar.write(f"void: others used {share:.0%} of the machine", file=sys.stderr)
                bar.update(-len(arms))
            if len(good) == rounds:
                return good
    sys.exit(f"benchmarks: error: {len(good)} of {rounds} rounds were undisturbed; run it on a quiet machine")


def _clocks() -> tuple[float, float, float]:
    """Return the time, the seconds that all processors worked, and those they worked for this program."""
    everything = psutil.cpu_times()
    ours = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    worked = everything.user + everything.nice + everything.system
    return time.monotonic(), worked, sum(use.ru_utime + use.ru_stime for use in ours)


def _others(before: tuple[float, float, float], after: tuple[float, float, float]) -> float:
    seconds, worked, ours = (b - a for a, b in zip(before, after, strict=True))
    return max(0.0, worked - ours) / (seconds * psutil.cpu_count())
