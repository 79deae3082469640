"""Functions that the graders of all labs share: they compare answers with the right ones.

A grader names the mistake where it recognizes one, and never reveals the right figure.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from labs.exercises.child import plain
from labs.exercises.selecting import Record, Selector, images_per_sec
from labs.results import noise
from labs.run.errors import one_line


@dataclasses.dataclass(frozen=True)
class Question:
    """A question that is graded from the student's own records; `compare` takes the answer and each of those runs."""

    select_runs: Selector
    compare: Callable[..., str]
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
    """There is nothing to judge or to keep: no answer yet, or a cell that cannot run alone."""


class NotInstalledError(NoAnswerError):
    """A cell imports a package that this computer lacks."""


def require(holds: Any, problem: str) -> None:
    """Raise AssertionError unless a condition holds; `assert` would do nothing under `python -O`."""
    if not holds:
        raise AssertionError(problem)


FORMULA = "The formula: "
"""Ends the hint on a wrong number; what follows is the solution."""
OF_SHARES = {100.0: "that is in percent; a share is a number from 0 to 1"}
OF_NUMBERS = {power: f"{name} times too {off}; check the units"
              for name, factor in {"a thousand": 1e3, "a million": 1e6, "sixty": 60.0, "a hundred": 100.0}.items()
              for power, off in {factor: "large", 1 / factor: "small"}.items()}
OF_BYTES = OF_NUMBERS | {1 / 4: "that counts numbers, not bytes; a number in float32 has 4 bytes",
                         8.0: "that is in bits; a byte has 8 bits"} | dict.fromkeys(
    (2**20 / 1e6, 1e6 / 2**20), "that confuses MB, 1e6 bytes, with MiB, 2^20 bytes")
"""Hints by how many times too large a wrong number is."""


def grade_number(answer: Any, right: float, unit: str, formula: str, mistakes: Mapping[str, float] | None = None, *,
                 rel_tol: float = 0.02, abs_tol: float = 0.0) -> str:
    """Compare a number with the right one and return the formula; AssertionError names the mistake and the formula.

    The unit is "steps", "ms", "no unit", or "share", a number from 0 to 1. `mistakes` has the figures that typical
    mistakes give, by what the mistake is: "that is ...". `abs_tol` is for what may be near 0.
    """
    usable = is_number(answer) and abs(answer) < 1e300  # Neither NaN nor infinite.
    require(usable, f"the answer is a number ({unit}), not {format_value(answer)}")

    def near(value: float, tolerance: float = rel_tol) -> bool:
        return abs(answer - value) <= max(tolerance * abs(value), abs_tol)

    if near(right):
        return formula
    factors = OF_BYTES if unit in ("bytes", "MB", "MiB", "GB/s") else OF_SHARES if unit == "share" else OF_NUMBERS
    hints = [*(mistakes or {}).items(), *((hint, factor * right) for factor, hint in factors.items())]
    hint = next((hint for hint, value in hints if near(value, max(rel_tol, 0.005))), (
        "it is not one of the usual mistakes; check the units, and which number is divided by which"))
    of = f" ({unit})" * (unit != "no unit")
    raise AssertionError(f"{float(answer):.6g} is not right: {hint}. {FORMULA}{formula}{of}")


def is_number(answer: Any) -> bool:
    """Return whether an answer is a real number and not a bool."""
    return isinstance(answer, int | float | np.number) and not isinstance(answer, bool)


def grade_choice(answer: Any, right: Collection[Any], others: Mapping[Any, str], reason: str) -> str:
    """Return the reason why a choice is right; AssertionError says what is wrong, as in `others`, or the choices."""
    names = {*right, *others}
    known = (isinstance(answer, str) or is_number(answer)) and answer in names
    require(known, f"{format_value(answer)} is not one of: {', '.join(map(str, sorted(names)))}")
    require(answer in right, f"{answer} is not right: {others.get(answer)}")
    return reason


def grade_entries(answer: Any, graders: Mapping[Any, Callable[[Any], str]]) -> str:
    """Grade each entry of a dictionary with its own grader; AssertionError names the entry, or those expected."""
    require(isinstance(answer, Mapping) and set(answer) == set(graders), "the answer is {" + ", ".join(
        f"{name!r}: ..." for name in graders) + f"}}, not {format_value(answer)}")
    reasons = {}
    for name, grade in graders.items():
        try:
            reasons[grade(answer[name])] = name
        except AssertionError as wrong:
            raise AssertionError(f"{name}: {wrong}") from None
    return "; ".join(f"{name}: {reason}" * (len(reasons) > 1) or reason for reason, name in reasons.items())


def format_value(value: Any) -> str:
    """Return a value as short text: arrays as lists, numbers with six digits."""
    return shorten(re.sub(r"\d+\.\d{6,}(e-?\d+)?", lambda number: repr(float(f"{float(number[0]):.6g}")),
                          repr(plain(value))))


def shorten(text: str) -> str:
    """Return text as one short line."""
    return one_line(text, 160)


def judged(guess: Any, right: Any, within: float = 0.0, margin: float = 0.0) -> str:
    """Return a prediction with "right", "not quite: ..." or "incomplete: ..."; without one, return it as text.

    None, also in place of a value, means no prediction. A list or a dictionary holds several right values; in a set any
    is right. A number may be off by `within` of the right one, and always by `margin`.
    """
    text, outcomes = format_value(guess), _judge_parts(guess, right, within, margin)
    if outcomes == {None}:
        return str(guess)
    if "no number" in outcomes:  # "67%", or 18,760, which Python takes for two numbers.
        return f"{text}: the answer must be a number, such as 0.67 or 18760"
    allowed = " or ".join([f"within {within:.0%}"] * bool(within) + [f"within {margin:g}"] * bool(margin))
    measured = format_value(right) + f" ({allowed} is right)" * bool(allowed)
    if outcomes == {True}:
        return f"{text}: right" + f": {measured}" * bool(allowed)
    return f"{text}: {'not quite' if False in outcomes else 'incomplete'}: {measured}"


def _judge_parts(guess: Any, right: Any, within: float, margin: float) -> set[Any]:
    """Return what holds about the parts of a guess: True, False, None without a prediction, "no number"."""
    if isinstance(right, Mapping) and isinstance(guess, Mapping):
        guess, right = list(map(guess.get, right)), list(right.values())
    if isinstance(right, list) and isinstance(guess, list | tuple | np.ndarray) and len(guess) == len(right) > 0:
        return set().union(*(_judge_parts(*pair, within, margin) for pair in zip(guess, right, strict=True)))
    if isinstance(right, set) and guess is not None:
        return {any(_judge_parts(guess, each, within, margin) == {True} for each in right)}
    if is_number(right):
        if is_number(guess):
            return {bool(abs(guess - right) <= max(within * abs(right), margin, 1e-9))}
        return {"no number" if isinstance(guess, str | tuple) else None if guess is None else False}
    if isinstance(guess, str) and isinstance(right, str):
        return {guess.strip().casefold() == right.casefold()}
    return {None if guess is None else bool(
        isinstance(guess, bool | np.bool_) and isinstance(right, bool | np.bool_) and guess == right)}


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
