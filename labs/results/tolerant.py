"""Reading of records that fit the schema but not the reader: name such a run, and read the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

Run = TypeVar("Run")
Item = TypeVar("Item")

UNREADABLE = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError)
"""Exceptions that a reader raises for a field of a different type from what its lab writes."""


def read(reader: Callable[[list[Run]], Iterable[Item]],
         runs: Sequence[Run]) -> tuple[list[Item], list[tuple[Run, Exception]]]:
    """Return what a reader yields for the runs that it can read, and the other runs with their problems.

    A run that cannot be read alone is left out. If each can, the runs do not fit each other: all are left out.
    """
    problem = _problem(reader, runs)
    if isinstance(problem, list):
        return problem, []
    alone = [_problem(reader, [run]) for run in runs] if len(runs) > 1 else [problem]
    bad = [(run, why) for run, why in zip(runs, alone, strict=True) if isinstance(why, Exception)]
    good = [run for run, why in zip(runs, alone, strict=True) if isinstance(why, list)]
    if not bad:
        return [], [(run, problem) for run in runs]
    items, others = read(reader, good) if good else ([], [])
    return items, [*bad, *others]


def _problem(reader: Callable[[list[Run]], Iterable[Item]], runs: Sequence[Run]) -> list[Item] | Exception:
    """Return what a reader yields, or the exception that it raises."""
    try:
        return list(reader(list(runs)))
    except UNREADABLE as problem:
        return problem
