"""Contenders in turns, A B C A B C, so that drift of the machine favours none; a disturbed round is void."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import psutil
from tqdm import tqdm

Contender = Callable[[], dict[str, Any]]
"""Measures once, in separate processes, and returns the figures by case."""
OTHERS = 0.05
"""Share of the machine that other processes may use during a round."""
TRIES = 3
"""At most this many times the requested rounds are started."""


def interleaved(contenders: Mapping[str, Contender], rounds: int) -> list[dict[str, dict[str, Any]]]:
    """Return the figures of each contender, for each valid round.

    Args:
        contenders: By name, in the order of a round.
        rounds: How many valid rounds to take.

    Raises:
        SystemExit: The machine was too busy for that many.
    """
    good: list[dict[str, dict[str, Any]]] = []
    with tqdm(total=rounds * len(contenders), unit="contender", file=sys.stderr) as bar:
        for _ in range(TRIES * rounds):
            before, figures = _clocks(), {}
            for name, measure in contenders.items():
                bar.set_postfix_str(name)
                figures[name] = measure()
                bar.update()
            if (share := _others(before, _clocks())) <= OTHERS:
                good.append(figures)
            else:
                bar.write(f"void: other processes used {share:.0%} of the machine", file=sys.stderr)
                bar.update(-len(contenders))
            if len(good) == rounds:
                return good
    sys.exit(f"benchmarks: error: {len(good)} of {rounds} rounds were undisturbed; run it on an idle machine")


def _clocks() -> tuple[float, float, float]:
    """Return the time, the CPU seconds of the whole machine, and those of this program."""
    everything = psutil.cpu_times()
    ours = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    worked = everything.user + everything.nice + everything.system
    return time.monotonic(), worked, sum(use.ru_utime + use.ru_stime for use in ours)


def _others(before: tuple[float, float, float], after: tuple[float, float, float]) -> float:
    seconds, worked, ours = (b - a for a, b in zip(before, after, strict=True))
    return max(0.0, worked - ours) / (seconds * psutil.cpu_count())
