"""Rows of figures as the rules of lint compare them, and findings."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

SPEEDS = ("images_per_sec", "seconds_per_epoch", "train_seconds", "total_seconds")
"""The columns from which a speedup can be computed, the best first."""


class Row(dict[str, Any]):
    """A record, or a line of a table, by the columns of `tables.COLUMNS`; `workers` is `size` there, as in records.

    Figures are attributes, such as `row.speedup`: NaN, with which every comparison is false, if there is none. Also
    `where`, the run or the file; `line`, in a file, or 0; and `settings`, whatever has to agree in a comparison apart
    from the batch size, as text.
    """

    def __getattr__(self, name: str) -> float:
        cell = self.get(name)
        return float(cell) if isinstance(cell, int | float) and math.isfinite(cell) else math.nan

    @property
    def size(self) -> float:
        """The number of workers, or nodes x processes; NaN if the row does not say it."""
        return _first(self.__getattr__("size"), self.nodes * _first(self.processes_per_node, 1.0))

    @property
    def batch(self) -> float:
        """The images of one step of one worker."""
        return _first(self.batch_size, self.global_batch_size / _first(self.size, 1.0))

    @property
    def global_batch(self) -> float:
        """The images of one step of all workers."""
        return _first(self.global_batch_size, self.batch_size * self.size)

    @property
    def workers(self) -> str:
        """The number of workers as text, or that of nodes if the row does not say how many each had."""
        unit = "node" if {"size", "processes_per_node"}.isdisjoint(self) else "worker"
        return f"{text(self.size)} {unit}{'s' * (self.size != 1)}" if self.size > 0 else "an unknown number of workers"

    @property
    def place(self) -> str:
        """The row in a message."""
        return f"line {self['line']}" if self["line"] else self["where"]

    def throughput(self, by: str) -> float:
        """Return the throughput, in any unit, from one of the columns `SPEEDS`; NaN if it has none."""
        figure = _first(self.__getattr__(by))
        return figure if by == "images_per_sec" else _first(self.images, 1.0) / figure

    def agree(self, *free: str) -> Hashable:
        """Return the settings that must agree in a comparison, apart from some."""
        return tuple((name, setting) for name, setting in self["settings"].items() if name not in free)


def _first(*figures: float) -> float:
    """Return the first figure above 0; NaN if there is none."""
    return next((figure for figure in figures if figure > 0), math.nan)


def group(items: Iterable, by: Callable[[Any], Hashable]) -> list[list]:
    """Return items in groups, in the order of the groups' first items."""
    groups = defaultdict(list)
    for item in items:
        groups[by(item)].append(item)
    return list(groups.values())


def measured_by(rows: Iterable[Row]) -> str:
    """Return the column from which the speedups of some rows follow best."""
    return next((by for by in SPEEDS if sum(row.size * row.throughput(by) > 0 for row in rows) > 1), SPEEDS[0])


def families(rows: Iterable[Row], by: str) -> Iterator[tuple[list[Row], list[Row]]]:
    """Yield the rows of each number of workers and nodes, behind the rows of their base.

    The base is the fewest workers of the same settings, either with the batch per worker (weak scaling) or with the
    global batch (strong scaling), whichever are fewer.
    """
    timed = sorted((row for row in rows if row.throughput(by) > 0 and row.size > 0), key=_shape)
    bases: dict[Hashable, list[Row]] = {}
    for row in timed:
        for constant in _constants(row):
            base = bases.setdefault(constant, [])
            base += [row] * (not base or _shape(base[0]) == _shape(row))
    for cell in group(timed, lambda row: (*_constants(row), _shape(row))):
        yield min((bases[constant] for constant in _constants(cell[0])), key=lambda base: base[0].size), cell


def _shape(row: Row) -> tuple[float, float]:
    return row.size, _first(row.nodes, 1.0)


def _constants(row: Row) -> tuple[Hashable, Hashable]:
    """Return what a weak and a strong scaling hold constant; as text, in which a NaN equals a NaN."""
    return (row.agree(), f"weak {row.batch}"), (row.agree(), f"strong {row.global_batch}")


def near(a: float, b: float, tolerance: float = 0.02) -> bool:
    """Return whether two figures agree except for rounding."""
    return abs(a - b) <= tolerance * abs(b)


def text(figure: float) -> str:
    """Write a number with few digits."""
    if not math.isfinite(figure):
        return "?"
    return f"{figure:,.0f}" if figure == int(figure) or abs(figure) >= 1000 else f"{figure:.4g}"


@dataclasses.dataclass(frozen=True)
class Finding:
    """A figure that cannot be right, or a statement that the figures do not support."""

    where: str
    """File, or lab/run."""
    lines: tuple[int, ...]
    """Lines of the file; empty for a record."""
    rule: str
    text: str
    """The figures, the probable cause and the cure."""

    def __str__(self) -> str:
        lines = f", line{'s' * (len(self.lines) > 1)} {', '.join(map(str, self.lines))}" if self.lines else ""
        return f"{self.where}{lines}: {self.rule}: {self.text}"


def brief(findings: Iterable[Finding]) -> list[str]:
    """Return a line per rule: the first finding in full, and the number of the others."""
    groups = group(findings, lambda each: each.rule)
    return [f"{first}" + f" (and {len(others)} more)" * bool(others) for first, *others in groups]
