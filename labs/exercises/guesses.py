"""Judgement of predictions on a page: a student's guess before a cell runs, against what the cell measures."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from labs.exercises.grading import format_value, is_number

FORMATTED = re.compile(r"[-+~]?\s*[\d.][\d.,' _]*(e[-+]?\d+)?\s*%?", re.I)
"""A number as '67%' or '18,760'."""


def judged(guess: Any, right: Any, within: float = 0.0, margin: float = 0.0) -> str:
    """Return a guess with "right", "not quite: ..." or "incomplete: ..."; without a guess, return it as text.

    Args:
        guess: The prediction: a value, or as many as `right` has. None, also in place of a value, means no prediction.
        right: What was measured. A list or a dictionary holds several values; in a set each one is right.
        within: How far a number may be off, relative to the right one.
        margin: How far a number may always be off.
    """
    text, pairs = format_value(guess), list(_pair(guess, right))
    given = [pair for pair in pairs if pair[0] is not None]
    if not given:
        return str(guess)
    for one, value in given:  # Python takes 18,760 for two numbers.
        if is_number(value) and (isinstance(one, tuple) or (isinstance(one, str) and FORMATTED.fullmatch(one))):
            return f"{text}: the answer must be a number, such as 0.67 or 18760, not {format_value(one)}"
    allowed = " or ".join([f"within {within:.0%}"] * bool(within) + [f"within {margin:g}"] * bool(margin))
    measured = format_value(right) + f" ({allowed} is right)" * bool(allowed)
    if not all(_matches(*pair, within, margin) for pair in given):
        return f"{text}: not quite: {measured}"
    if len(given) < len(pairs):
        return f"{text}: incomplete: {measured}"
    return f"{text}: right" + f": {measured}" * bool(allowed)


def _pair(guess: Any, right: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each guess with the right value; a guess of another form matches nothing."""
    if isinstance(right, Mapping) and isinstance(guess, Mapping):
        guess, right = list(map(guess.get, right)), list(right.values())
    if isinstance(right, list) and isinstance(guess, list | tuple | np.ndarray) and len(guess) == len(right) > 0:
        for one, other in zip(guess, right, strict=True):
            yield from _pair(one, other)
    else:
        yield guess, right


def _matches(guess: Any, right: Any, within: float, margin: float) -> bool:
    if isinstance(right, set):
        return any(_matches(guess, each, within, margin) for each in right)
    if is_number(guess) and is_number(right):
        return bool(abs(guess - right) <= max(within * abs(right), margin, 1e-9))
    if isinstance(guess, str) and isinstance(right, str):
        return guess.strip().casefold() == right.casefold()
    return isinstance(guess, bool | np.bool_) and isinstance(right, bool | np.bool_) and guess == right
