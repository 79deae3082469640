"""Rules about speedups and scaling efficiencies, stated or computed from times.

A rule is a function that yields a tuple per finding: a text with cause and cure, and the rows that it is about.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Hashable, Iterator
from typing import Any

from labs.lint.rows import SPEEDS, Row, families, group, near, text
from labs.results import noise, scaling

Found = Iterator[tuple[Any, ...]]
MOST = 1 + scaling.ROUNDED
"""The largest efficiency that rounding explains."""


def efficiency_above_1(rows: list[Row]) -> Found:
    """Find n workers that are more than n times as fast as one."""
    compared: dict[int, tuple[str, list[Row], list[Row]]] = {}
    for by in SPEEDS:
        for base, cell in families(rows, by):
            if cell[0].size > base[0].size:
                compared.setdefault(id(cell[0]), (by, base, cell))
    for by, base, cell in compared.values():
        n = cell[0].size / base[0].size
        speedup = noise.compare(_by_seed(cell, by), _by_seed(base, by), ratio=True, comparisons=len(compared))
        if speedup.value > MOST * n and not speedup.low <= n:
            yield (f"{text(speedup.value)} times the throughput of {base[0].workers} with {cell[0].workers}: "
                   f"{_cause(speedup.value / n)}", *cell)
    for row in rows:
        if (efficiency := row.speedup / _ideal(row, rows)) > MOST:
            yield f"speedup {text(row.speedup)} with {row.workers}: {_cause(efficiency)}", row
        if row.scaling_efficiency > MOST:
            yield f"scaling {_cause(row.scaling_efficiency)}", row


def _by_seed(rows: list[Row], by: str) -> dict[Hashable, float]:
    """Return throughputs by seed, or by row if seeds repeat, without the disturbed runs where there are others."""
    rows = [row for row in rows if not row.get("disturbed")] or rows
    unique = len({row.seed for row in rows if not math.isnan(row.seed)}) == len(rows)
    return {row["seed"] if unique else object(): row.throughput(by) for row in rows}


def _cause(efficiency: float) -> str:
    """Return an efficiency above 1 with its probable cause and the cure."""
    if efficiency > 5:
        return f"efficiency {text(efficiency)}; write 0.95 for 95 %"
    return f"efficiency {efficiency:.2f}; " + (
        "the base is slow for another reason (input?), or another number of workers ran than the row says; run "
        "synthetic data as the control" if efficiency > 1.1 else
        "single runs vary as much, and caches help; repeat both")


def _ideal(row: Row, rows: list[Row]) -> float:
    """Return the speedup at efficiency 1: n over the workers of the row whose stated speedup is 1, or over one."""
    bases = [other.size for other in rows
             if near(other.speedup, 1) and other.agree() == row.agree() and other.size <= row.size]
    return row.size / min(bases, default=1.0)


def wrong_speedup(rows: list[Row]) -> Found:
    """Find speedups that are not throughput(n) / throughput(1) of one configuration, and say what they are instead."""
    right_lines, wrong = set(), dict[int, tuple[str, Row]]()
    for by in SPEEDS:
        for base, cell in families(rows, by):
            for row in (row for row in cell if not math.isnan(row.speedup)):
                # A base of several workers may have a speedup itself.
                scale = base[0].speedup if base[0].size > 1 and base[0].speedup > 0 else 1.0
                rights = [scale * row.throughput(by) / other.throughput(by) for other in base]
                if any(near(row.speedup, right, 0.03) for right in (*rights, noise.geometric_mean(rights))):
                    right_lines.add(row["line"])
                wrong.setdefault(row["line"], (_instead(row, base[0], rights[0], rows, by), row))
    yield from (found for line, found in wrong.items() if line not in right_lines)


def _instead(row: Row, base: Row, right: float, rows: list[Row], by: str) -> str:
    """Say which other ratio of the table a speedup is."""
    others = sorted((other for other in rows if other.throughput(by) > 0 and other is not row),
                    key=lambda other: (other.agree() != row.agree(), other.size != row.size))
    ratios = [(row, row, "every row was used as its own baseline"), (base, row, "inverted"),
              *((other, base, "labels swapped") for other in others
                if other.agree() == row.agree() and base.batch in (other.batch, other.global_batch)),
              *((row, other, "the wrong base") for other in others),
              *((other, row, "inverted, and the wrong base") for other in others)]
    what = next((f"{cause}: it is that of {a.place} over that of {b.place} (batch {text(b.batch)}, {b.workers})"
                 for a, b, cause in ratios if near(row.speedup, a.throughput(by) / b.throughput(by), 0.005)),
                "no ratio of this table gives it")
    return f"{text(row.speedup)} is not the throughput over that of {base.place}, {right:.2f}; {what}"


def speedup_below_1(rows: list[Row]) -> Found:
    """Find speedups below 1 with more workers, where no times show a slow-down."""
    for row in rows:
        if _ideal(row, rows) > 1 and 0 < row.speedup < 0.95 and not any(row.throughput(by) > 0 for by in SPEEDS):
            yield (f"{text(row.speedup)} with {row.workers}: is it inverted, T(n) / T(1) instead of T(1) / T(n) = "
                   f"{1 / row.speedup:.2f}? If they were slower, show the times"), row


MODELS = {"resnet50": 219.0, "vgg16": 154.0, "resnet152": 91.8}
"""Images per second of one P100, from TensorFlow's benchmarks page. The ratios hold roughly on other GPUs."""


def input_bound_baseline(rows: list[Row]) -> Found:
    """Find very different models with nearly one throughput on one worker: the input pipeline was measured."""
    alone = [row for row in rows if row.size == 1 and _usual(row) and row.images_per_sec > 0]
    for same in group(alone, lambda row: (row.agree("model"), str(row.batch))):
        networks = {_usual(row): row for row in reversed(same)}.values()
        for b, a in itertools.combinations(networks, 2):
            if near(a.images_per_sec, b.images_per_sec, 0.1) and not near(_usual(a), _usual(b), 0.3):
                yield (f"{a['model']} {text(a.images_per_sec)} and {b['model']} {text(b.images_per_sec)} "
                       f"images/s, where one P100 trains them at {text(_usual(a))} and {text(_usual(b))}: the input "
                       "was the limit, and this is no base for a speedup; run synthetic data as the control"), a, b


def _usual(row: Row) -> float:
    return MODELS.get(re.sub(r"[\W_]", "", str(row.get("model")).lower()), 0.0)


def more_workers_longer(rows: list[Row]) -> Found:
    """Find the largest number of workers if it took longer than a row without a number of workers."""
    most = max((row.size for row in rows if row.size > 1 and row.total_seconds > 0), default=math.nan)
    for row, other in itertools.product(rows, rows):
        if row.size == most and math.isnan(other.size) and other.total_seconds < row.total_seconds:
            yield (f"{row.workers} took {text(row.total_seconds)} s, longer than the "
                   f"{text(other.total_seconds)} s of {other.place}: start-up and input dominate so short a run; "
                   "compare seconds per epoch, the first left out"), row
