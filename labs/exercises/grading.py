"""Functions that the graders of all labs share: they compare answers with the right ones.

A grader names the mistake where it recognizes one, and never reveals the right figure.
"""

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping
from numbers import Real
from typing import Any

import numpy as np

from labs.exercises.selecting import Record, Selector, images_per_sec
from labs.results import noise
from labs.run.errors import printable


@dataclasses.dataclass(frozen=True)
class Question:
    """A question that is graded from the student's own records; the page has its text."""

    select_runs: Selector
    compare: Callable[..., str]
    """Takes the answer and each of those runs."""
    timed: bool = False
    """Whether it is about measured times: lint's warning, if they allow no conclusion, then stands beside the mark."""

    def grade(self, answer: Any, runs: list[Record]) -> str:
        """Return why an answer about these runs is right, or raise AssertionError with what is wrong."""
        warning = noise.warning(*runs) if self.timed else ""
        try:
            return self.compare(answer, *runs) + f". {warning}" * bool(warning)
        except AssertionError as wrong:
            raise AssertionError(f"{wrong} {warning}".rstrip()) from None


class NoAnswerError(AssertionError):
    """There is nothing to judge, and nothing to keep: no answer yet, or a cell that cannot run alone."""


class NotInstalledError(NoAnswerError):
    """A cell imports a package that this computer lacks."""


def require(holds: Any, problem: str) -> None:
    """Raise AssertionError unless a condition holds; `assert` would do nothing under `python -O`."""
    if not holds:
        raise AssertionError(problem)


FORMULA = "The formula: "
"""Ends the hint on a wrong number; what follows is the solution."""


def grade_number(answer: Any, right: float, unit: str, formula: str, mistakes: Mapping[str, float] | None = None, *,
                 rel_tol: float = 0.02, abs_tol: float = 0.0) -> str:
    """Compare a number with the right one and return the formula; AssertionError names the mistake and the formula.

    Args:
        answer: Anything.
        right: The right number.
        unit: Its unit: "steps", "ms", "no unit"; "share" is a number from 0 to 1.
        formula: How to compute it, in words that a student finds in the notebook.
        mistakes: Figures that typical mistakes give, by what the mistake is: "that is ...".
        rel_tol, abs_tol: The relative tolerance, and the absolute one, for what may be near 0.
    """
    require(is_number(answer) and math.isfinite(answer), f"the answer is a number ({unit}), not {format_value(answer)}")
    given = float(answer)

    def near(value: float, tolerance: float = rel_tol) -> bool:
        return abs(given - value) <= max(tolerance * abs(value), abs_tol)

    if near(right):
        return formula
    hints = (hint for hint, value in (mistakes or {}).items() if near(value, max(rel_tol, 0.005)))
    hint = next(hints, None) or _hint_from_factor(near, given, right, unit)
    raise AssertionError(f"{given:.6g} is not right: {hint}. "
                         f"{FORMULA}{formula}" + f" ({unit})" * (unit != "no unit"))


def is_number(answer: Any) -> bool:
    """Return whether an answer is a real number and not a bool."""
    return isinstance(answer, Real) and not isinstance(answer, bool)


def _hint_from_factor(near: Callable[..., bool], given: float, right: float, unit: str) -> str:
    """Return a hint from how far the answer is off."""
    if unit == "share" and near(100 * right):
        return "that is in percent; a share is a number from 0 to 1"
    factors = {"a thousand": 1000, "a million": 1e6, "sixty": 60, "a hundred": 100}
    for name, factor in factors.items() if unit != "share" else ():
        if near(factor * right) or near(right / factor):
            return f"{name} times too {'large' if given > right else 'small'}; check the units"
    of_bytes = {1 / 4: "that counts numbers, not bytes; a number in float32 has 4 bytes",
                8: "that is in bits; a byte has 8 bits",
                **dict.fromkeys((2**20 / 1e6, 1e6 / 2**20), "that confuses MB, 1e6 bytes, with MiB, 2^20 bytes")}
    for factor, text in of_bytes.items() if unit in ("bytes", "MB", "MiB", "GB/s") else ():
        if near(factor * right):
            return text
    if unit == "no unit" and 0 < min(given, right) < 1 < max(given, right):
        return f"it is {'below' if given < 1 else 'above'} 1, unlike your runs: is it inverted, a / b instead of b / a?"
    if given * right < 0:
        return "its sign is wrong"
    far = given and right and abs(math.log(abs(given / right))) > math.log(5)
    return "it is far off; check the units, and which number is divided by which" if far else (
        "it is not one of the usual mistakes")


def grade_choice(answer: Any, right: Collection[Any], others: Mapping[Any, str], reason: str) -> str:
    """Return the reason why a choice is right; AssertionError says what is wrong, as in `others`, or the choices."""
    names = {*right, *others}
    known = (isinstance(answer, str) or is_number(answer)) and answer in names
    require(known, f"{format_value(answer)} is not one of: {', '.join(map(str, sorted(names)))}")
    require(answer in right, f"{answer} is not right: {others.get(answer)}")
    return reason


def grade_entries(answer: Any, graders: Mapping[Any, Callable[[Any], str]]) -> str:
    """Grade each entry of a dictionary with its own grader; AssertionError names the entry, or those expected."""
    expected = "{" + ", ".join(f"{name!r}: ..." for name in graders) + "}"
    require(isinstance(answer, Mapping) and set(answer) == set(graders),
            f"the answer is {expected}, not {format_value(answer)}")
    reasons = {}
    for name, grade in graders.items():
        try:
            reasons[grade(answer[name])] = name
        except AssertionError as wrong:
            raise AssertionError(f"{name}: {wrong}") from None
    return "; ".join(f"{name}: {reason}" * (len(reasons) > 1) or reason for reason, name in reasons.items())


LONGEST = 160
"""Most characters of a value or an error in a hint."""


def format_value(value: Any) -> str:
    """Return a value as short text: arrays as lists, numbers with six digits; only its type if it cannot be shown."""
    try:
        return shorten(repr(_round(value)))
    except Exception:
        return f"a {type(value).__name__}"


def shorten(text: str) -> str:
    """Return text as one short line, escaped as by `printable`."""
    text = printable(" ".join(text[:10 * LONGEST].split()))
    return text if len(text) <= LONGEST else f"{text[:LONGEST - 3]}..."


def _round(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return _round(value.tolist())
    if type(value) in (list, tuple):
        return type(value)(map(_round, value))
    if type(value) is dict:
        return {_round(key): _round(entry) for key, entry in value.items()}
    return float(f"{value:.6g}") if type(value) is float else value


def ratio(above: float, below: float) -> float:
    """Return a quotient, or NaN, which no answer matches, if the divisor is 0."""
    return above / below if below else math.nan


def grade_speedup(answer: Any, one: Record, many: Record, more_mistakes: Mapping[str, float] | None = None) -> str:
    """Grade the speedup of the second run over the first, of one worker."""
    size, right = many["layout"]["size"], ratio(images_per_sec(many), images_per_sec(one))
    seconds = [run["timings"]["total_seconds"] for run in (one, many)]
    return grade_number(answer, right, "no unit", f"throughput({size}) / throughput(1), that is images_per_sec of all "
                        f"workers over images_per_sec of one", {
        f"that is throughput(1) / throughput({size}), upside down: faster is above 1": ratio(1, right),
        "that is the scaling efficiency; the speedup is not divided by the number of workers": right / size,
        "that is the number of workers, the best possible speedup": size,
        "that is the ratio of the total seconds, which are mostly start-up and first epoch": ratio(*seconds),
        **(more_mistakes or {})})


def grade_efficiency(answer: Any, one: Record, many: Record) -> str:
    """Grade the scaling efficiency of the second run; the first is of one worker."""
    size, right = many["layout"]["size"], ratio(images_per_sec(many), images_per_sec(one))
    formula = f"speedup / {size}, and the speedup is throughput({size}) / throughput(1)"
    return grade_number(answer, right / size, "share", formula, {
        f"that is the speedup; divide it by the {size} workers": right,
        f"that is upside down: throughput(1) / throughput({size}) is not a speedup": ratio(1, right) / size,
        "that is the share that is lost; the efficiency is the share that is left": 1 - right / size})
