"""Judgement of predictions on a page: a student's guess before a cell runs, against what the cell measures."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from labs.exercises.grading import format_value, is_number


def judged(guess: Any, right: Any, within: float = 0.0, margin: float = 0.0) -> str:
    """Return a guess with "right", "not quite: ..." or "incomplete: ..."; without a guess, return it as text.

    Args:
        guess: The prediction: a value, or as many as `right` has. None, also in place of a value, means no prediction.
        right: What was measured. A list or a dictionary holds several values; in a set each one is right.
        within: How far a number may be off, relative to the right one.
        margin: How far a number may always be off.
    """
    pairs = list(_pair(guess, right))
    given = [pair for pair in pairs if pair[0] is not None]
    if not given:
        return str(guess)
    if texts := [one for one, value in given if is_number(value) and _is_formatted_number(one)]:
        text = format_value(texts[0])
        return f"{format_value(guess)}: the answer must be a number, such as 0.67 or 18760, not {text}"
    allowed = " or ".join([f"within {within:.0%}"] * bool(within) + [f"within {margin:g}"] * bool(margin))
    measured = format_value(right) + f" ({allowed} is right)" * bool(allowed)
    if not all(_matches(*pair, within, margin) for pair in given):
        return f"{format_value(guess)}: not quite: {measured}"
    if len(given) < len(pairs):
        return f"{format_value(guess)}: incomplete: {measured}"
    return f"{format_value(guess)}: right" + f": {measured}" * bool(allowed)


def _pair(guess: Any, right: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each guess with the right value; a guess of another form matches nothing."""
    if isinstance(right, Mapping) and isinstance(guess, Mapping):
        guess, right = list(map(guess.get, right)), list(right.values())
    if isinstance(right, list) and isinstance(guess, list | tuple | np.ndarray) and len(guess) == len(right) > 0:
        for one, other in zip(guess, right, strict=True):
            yield from _pair(one, other)
    else:
        yield guess, right


def _is_formatted_number(guess: Any) -> bool:
    """Return whether a guess is '67%' or '18,760', or 18,760, which Python takes for two numbers."""
    text = isinstance(guess, str) and re.fullmatch(r"[-+~]?\s*[\d.][\d.,' _]*(e[-+]?\d+)?\s*%?", guess, re.I)
    return bool(text) or (isinstance(guess, tuple) and len(guess) > 1)


def _matches(guess: Any, right: Any, within: float, margin: float) -> bool:
    if isinstance(right, set):
        return any(_matches(guess, each, within, margin) for each in right)
    if is_number(guess) and is_number(right):
        return bool(abs(guess - right) <= max(within * abs(right), margin, 1e-9))
    if isinstance(guess, str) and isinstance(right, str):
        return guess.strip().casefold() == right.casefold()
    return isinstance(guess, bool | np.bool_) and isinstance(right, bool | np.bool_) and guess == right
