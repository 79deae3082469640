"""Judgement of predictions on a page: a student's guess before a cell runs, against what the cell measures."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from labs.exercises.grading import is_number, shown


def judged(guess: Any, right: Any, within: float = 0.0, margin: float = 0.0) -> str:
    """Return a guess with "right", "not quite: ..." or "incomplete: ..."; without a guess, return it as text.

    Args:
        guess: The prediction: a value, or as many as `right` has. None, also in place of a value, means no prediction.
        right: What was measured. A list or a dictionary holds several values; in a set each one is right.
        within: How far a number may be off, relative to the right one.
        margin: How far a number may always be off.
    """
    given = guess.items() if isinstance(guess, Mapping) and isinstance(right, Mapping) else ()
    if unknown := [key for key, value in given if value is not None and key not in right]:
        return f"{shown(guess)}: there is no {shown(unknown[0])}; the keys are {', '.join(map(shown, right))}"
    asked = list(_pairs(guess, right))
    pairs = [pair for pair in asked if pair[0] is not None]
    if not pairs:
        return str(guess)
    if texts := [one for one, value in pairs if is_number(value) and _looks_like_a_number(one)]:
        return f"{shown(guess)}: the answer must be a number, such as 0.67 or 18760, not {shown(texts[0])}"
    allowed = [f"within {within:.0%}"] * bool(within) + [f"within {margin:g}"] * bool(margin)
    measured = f"{shown(right)} ({' or '.join(allowed)} is right)" if allowed else shown(right)
    if all(_matches(*pair, within, margin) for pair in pairs):
        if len(pairs) < len(asked):
            return f"{shown(guess)}: incomplete: {measured}"
        return f"{shown(guess)}: right" + f": {measured}" * bool(allowed)
    return f"{shown(guess)}: not quite: {measured}"


def _pairs(guess: Any, right: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each guess with the right value; a guess of another form matches nothing."""
    if isinstance(right, Mapping):
        fits, values = isinstance(guess, Mapping), list(right.values())
        given = list(map(guess.get, right)) if fits else []
    else:
        values = right if isinstance(right, list) else []
        fits = isinstance(guess, list | tuple | np.ndarray) and len(guess) == len(values)
        given = list(guess) if fits else []
    if fits and values:
        for one, other in zip(given, values, strict=True):
            yield from _pairs(one, other)
    else:
        yield guess, right


def _looks_like_a_number(guess: Any) -> bool:
    """Return whether a guess is '67%' or '18,760', or 18,760, which Python takes for two numbers."""
    text = re.fullmatch(r"[-+~]?\s*[\d.][\d.,' _]*(e[-+]?\d+)?\s*%?", guess, re.I) if isinstance(guess, str) else None
    return bool(text) or (isinstance(guess, tuple) and len(guess) > 1 and all(map(is_number, guess)))


def _matches(guess: Any, right: Any, within: float, margin: float) -> bool:
    if isinstance(right, set):
        return any(_matches(guess, each, within, margin) for each in right)
    if is_number(guess) and is_number(right):
        return bool(abs(guess - right) <= max(within * abs(right), margin, 1e-9))
    if isinstance(guess, str) and isinstance(right, str):
        return guess.strip().casefold() == right.casefold()
    return isinstance(guess, bool | np.bool_) and isinstance(right, bool | np.bool_) and guess == right
