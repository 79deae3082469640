"""Functions that the graders of all labs share: they select records, and compare answers with them.

A grader names the mistake where it recognizes one, and never reveals the right figure.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from labs.results import noise, records
from labs.results.records import Record
from labs.run.text import printable

Selector = Callable[[list[Record]], list[Record]]
"""Takes all records of a lab, oldest first, and returns those that a question is about; raises AssertionError if they
are missing."""


@dataclasses.dataclass(frozen=True)
class Question:
    """A question that is graded from the student's own records; the page has its text."""

    select_runs: Selector
    """Selects what the page calls "this run" and "these runs"."""
    compare: Callable[[Any, list[Record]], str]
    """Takes the answer and those records; returns why it is right, or raises AssertionError with what is wrong."""
    timed: bool = False
    """Whether it is about measured times: lint's warning, if they allow no conclusion, then stands beside the mark."""

    def grade(self, answer: Any, runs: list[Record]) -> str:
        """Return why an answer is right, or raise AssertionError with what is wrong."""
        warning = noise.warning(*runs) if self.timed else ""
        try:
            return self.compare(answer, runs) + f". {warning}" * bool(warning)
        except AssertionError as wrong:
            raise AssertionError(f"{wrong} {warning}".rstrip()) from None


# Selecting records.

def newest(what: str, source: str, accept: Callable[[Record], Any]) -> Selector:
    """Return a selector of the newest record that `accept` returns a true value for.

    Args:
        what: What the record is of, for the error message.
        source: The command or the section of the notebook that makes such a record.
        accept: Whether a record will do.
    """
    def select(records: list[Record]) -> list[Record]:
        for record in reversed(records):
            if accept(record):
                return [record]
        raise missing_run(what, source)

    return select


def missing_run(what: str, source: str) -> AssertionError:
    """Return the error that says which run is missing and what makes it: a command, or a section of the notebook."""
    return AssertionError(f"no record yet of {what}; {source} makes it")


def images_per_sec(record: Record) -> float:
    """Return the images per second of a run, without its first epoch; 0 if it has no other epoch."""
    return record["timings"].get("images_per_sec") or 0.0


def multi_worker(record: Record) -> bool:
    """Return whether a run had more than one worker."""
    return record["layout"]["size"] > 1


def pair_with_one_worker(source: str, *, strong: bool = False, may_differ: Collection[str] = (),
                         accept: Callable[[Record], Any] = images_per_sec) -> Selector:
    """Return a selector of the newest pair of runs with the same settings, one of one worker and one of several.

    Args:
        source: What makes such a pair.
        strong: Whether the two have the same global batch size, instead of the same batch size per worker.
        may_differ: Further settings in which the two may differ.
        accept: What both records must have; by default a throughput.
    """
    allowed = {"seed", *may_differ, *(("batch_size",) if strong else ())}

    def select(records: list[Record]) -> list[Record]:
        usable = [record for record in records if accept(record)]
        for many in filter(multi_worker, reversed(usable)):
            for one in reversed(usable):
                if one["layout"]["size"] == 1 and _comparable(one, many, allowed, strong):
                    return [one, many]
        batch = "global batch" if strong else "batch per worker"
        raise missing_run(f"one worker and of several with the same settings, {batch} and threads", source)

    return select


def _comparable(one: Record, many: Record, may_differ: set[str], strong: bool) -> bool:
    layouts = one["layout"], many["layout"]
    same = differing_settings(one, many) <= may_differ
    if strong:
        same &= len({layout["global_batch_size"] for layout in layouts}) == 1
    # Workers on GPUs do not compute on CPU cores. Others must have equally many threads each.
    return same and (bool(layouts[1].get("gpus")) or len({layout.get("threads") for layout in layouts}) == 1)


def differing_settings(one: Record, other: Record) -> set[str]:
    """Return the names of the settings in which two runs differ, what they were computed on among them."""
    both = one["config"], other["config"]
    differing = {name for name in both[0].keys() | both[1].keys() if both[0].get(name) != both[1].get(name)}
    return differing | set(records.computed_on([one, other]))


# Grading answers.

class NoAnswerError(AssertionError):
    """There is nothing to judge, and nothing to keep: no answer yet, or a cell that cannot run alone."""


class NotInstalledError(NoAnswerError):
    """The cell imports a package that is not installed where it is judged."""


def require(holds: Any, problem: str) -> None:
    """Raise AssertionError unless a condition holds; `assert` would do nothing under `python -O`."""
    if not holds:
        raise AssertionError(problem)


FORMULA = "The formula: "
"""Ends the hint on a wrong number; what follows is the solution."""


def grade_number(answer: Any, right: float, unit: str, formula: str, mistakes: Mapping[str, float] | None = None, *,
                 rel_tol: float = 0.02, abs_tol: float = 0.0) -> str:
    """Compare a number with the right one and return the formula.

    Args:
        answer: Anything.
        right: The right number.
        unit: Its unit: "steps", "ms", "no unit"; "share" is a number from 0 to 1.
        formula: How to compute it, in words that a student finds in the notebook.
        mistakes: Figures that typical mistakes give, by what the mistake is: "that is ...".
        rel_tol: Relative tolerance.
        abs_tol: Absolute tolerance, for what may be near 0.

    Raises:
        AssertionError: The answer is wrong; names the mistake, if it is a typical one, and the formula.
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


FACTORS = {"a thousand": 1000, "a million": 1e6, "sixty": 60, "a hundred": 100}
OF_BYTES = {1 / 4: "that counts numbers, not bytes; a number in float32 has 4 bytes",
            8: "that is in bits; a byte has 8 bits",
            **dict.fromkeys((2**20 / 1e6, 1e6 / 2**20), "that confuses MB, 1e6 bytes, with MiB, 2^20 bytes")}
"""Hints for amounts of data, by how far the answer is off."""


def _hint_from_factor(near: Callable[..., bool], given: float, right: float, unit: str) -> str:
    """Return a hint from how far the answer is off."""
    if unit == "share" and near(100 * right):
        return "that is in percent; a share is a number from 0 to 1"
    for name, factor in FACTORS.items() if unit != "share" else ():
        if near(factor * right) or near(right / factor):
            return f"{name} times too {'large' if given > right else 'small'}; check the units"
    for factor, text in OF_BYTES.items() if unit in ("bytes", "MB", "MiB", "GB/s") else ():
        if near(factor * right):
            return text
    if unit == "no unit" and 0 < min(given, right) < 1 < max(given, right):
        return f"it is {'below' if given < 1 else 'above'} 1, unlike your runs: is it inverted, a / b instead of b / a?"
    if given * right < 0:
        return "its sign is wrong"
    if given and right and abs(math.log(abs(given / right))) > math.log(5):
        return "it is far off; check the units, and which number is divided by which"
    return "it is not one of the usual mistakes"


def grade_choice(answer: Any, right: Collection[Any], others: Mapping[Any, str], reason: str) -> str:
    """Compare a choice with the right ones, and return the reason why they are right.

    Raises:
        AssertionError: Says what is wrong about the answer, as in `others`, or lists the choices.
    """
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
            reasons[name] = grade(answer[name])
        except AssertionError as wrong:
            raise AssertionError(f"{name}: {wrong}") from None
    if len(set(reasons.values())) == 1:
        return next(iter(reasons.values()))
    return "; ".join(f"{name}: {reason}" for name, reason in reasons.items())


LONGEST = 160
"""Most characters of a value or an error in a hint."""


def format_value(value: Any) -> str:
    """Return a value as short text: arrays as lists, numbers with six digits; only its type if it cannot be shown."""
    try:
        return shorten(repr(_round(value)))
    except Exception:
        return shorten(f"a {type(value).__name__}")


def format_error(error: BaseException) -> str:
    """Return an error's type and text, short."""
    return shorten(f"{type(error).__name__}: {error}".removesuffix(": "))


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


def grade_speedup(answer: Any, runs: Sequence[Record], more_mistakes: Mapping[str, float] | None = None) -> str:
    """Grade the speedup of the second run over the first, of one worker."""
    one, many = runs
    size, right = many["layout"]["size"], ratio(images_per_sec(many), images_per_sec(one))
    seconds = [run["timings"]["total_seconds"] for run in runs]
    return grade_number(answer, right, "no unit", f"throughput({size}) / throughput(1), that is images_per_sec of all "
                        f"workers over images_per_sec of one", {
        f"that is throughput(1) / throughput({size}), upside down: faster is above 1": ratio(1, right),
        "that is the scaling efficiency; the speedup is not divided by the number of workers": right / size,
        "that is the number of workers, the best possible speedup": size,
        "that is the ratio of the total seconds, which are mostly start-up and first epoch": ratio(*seconds),
        **(more_mistakes or {}),
    })


def grade_efficiency(answer: Any, runs: Sequence[Record]) -> str:
    """Grade the scaling efficiency of the second run; the first is of one worker."""
    one, many = runs
    size, right = many["layout"]["size"], ratio(images_per_sec(many), images_per_sec(one))
    formula = f"speedup / {size}, and the speedup is throughput({size}) / throughput(1)"
    return grade_number(answer, right / size, "share", formula, {
        f"that is the speedup; divide it by the {size} workers": right,
        f"that is upside down: throughput(1) / throughput({size}) is not a speedup": ratio(1, right) / size,
        "that is the share that is lost; the efficiency is the share that is left": 1 - right / size,
    })
