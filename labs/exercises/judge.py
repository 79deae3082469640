"""What the judges of all labs share: picking records, and holding answers against what follows from them.

A judge names the mistake where it can recognize it, and never the right figure.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from numbers import Real
from typing import Any

from labs.results.records import Record


@dataclasses.dataclass(frozen=True)
class Question:
    """A question that can be judged by machine."""

    text: str
    """In Markdown, on one line. "These runs" are those of `runs`."""
    answer: str
    """What to answer: "a number, in minutes"."""
    runs: Callable[[list[Record]], list[Record]]
    """Picks what the question is about from all records of the lab, oldest first; AssertionError if it is not there."""
    judge: Callable[[Any, list[Record]], str]
    """Takes the answer and those runs; AssertionError says what is wrong, the returned text why it is right."""


# Picking records.

def newest(records: Sequence[Record], what: str, source: str, fits: Callable[[Record], Any]) -> Record:
    """Return the newest record that fits.

    Raises:
        AssertionError: There is none; says what is missing, and what makes it.
    """
    for record in reversed(records):
        if fits(record):
            return record
    raise missing(what, source)


def missing(what: str, source: str) -> AssertionError:
    """Return the error that says which run is missing, and what makes it: a command, or a section of the notebook."""
    return AssertionError(f"no record yet of {what}; {source} makes it")


def timed(record: Record) -> float:
    """Return the images per second of a run, without its first epoch; 0 if it has no other."""
    return record["timings"].get("images_per_sec") or 0.0


def several(record: Record) -> bool:
    """Whether a run had more than one worker."""
    return record["layout"]["size"] > 1


def against_one(records: Sequence[Record], source: str, *, strong: bool = False,
                free: Collection[str] = (), fits: Callable[[Record], Any] = timed) -> list[Record]:
    """Return two runs: of one worker, and of several that were set the same task; the newest such pair.

    Args:
        records: Of a lab.
        source: What makes such a pair.
        strong: The task is the global batch, not the batch of one worker.
        free: Further settings in which the two may differ.
        fits: What both must have; by default a rate.

    Raises:
        AssertionError: There is no such pair.
    """
    free = {"seed", *free, *(("batch_size",) if strong else ())}
    usable = [record for record in records if fits(record)]
    for many in filter(several, reversed(usable)):
        for one in reversed(usable):
            if one["layout"]["size"] == 1 and _same_task(one, many, free, strong):
                return [one, many]
    held = "global batch" if strong else "batch per worker"
    raise missing(f"one worker and of several with the same settings, {held} and threads", source)


def _same_task(one: Record, many: Record, free: Collection[str], strong: bool) -> bool:
    layouts = one["layout"], many["layout"]
    same = different(one, many) <= set(free)
    if strong:
        same &= len({layout["global_batch_size"] for layout in layouts}) == 1
    # A worker on a GPU does not compute on its cores; any other one has the share of the machine that it is given.
    return same and (bool(layouts[1].get("gpus")) or len({layout.get("threads") for layout in layouts}) == 1)


def different(one: Record, other: Record) -> set[str]:
    """Return the settings in which two runs differ."""
    both = one["config"], other["config"]
    return {name for name in both[0].keys() | both[1].keys() if both[0].get(name) != both[1].get(name)}


# Holding answers against them.

def number(answer: Any, right: float, unit: str, formula: str, mistakes: Mapping[str, float] | None = None, *,
           tolerance: float = 0.02, slack: float = 0.0) -> str:
    """Hold a number against the right one, and return the formula.

    Args:
        answer: Anything.
        right: The right number.
        unit: What it counts: "steps", "ms", "no unit"; "share" is a number from 0 to 1.
        formula: How it is computed, in words that a student finds in the notebook.
        mistakes: What some mistakes give, by what they are: "that is ...".
        tolerance: Relative.
        slack: Absolute, for what may be near 0.

    Raises:
        AssertionError: Names the mistake, if it is one of these, and the formula.
    """
    assert _is_number(answer), f"the answer is a number ({unit}), not {_short(answer)}"
    assert abs(answer) < 1e300, f"the answer is a number ({unit}), and {_short(answer)} is none"
    given = float(answer)

    def near(value: float, relative: float = tolerance) -> bool:
        return abs(given - value) <= max(relative * abs(value), slack)

    if near(right):
        return formula
    named = (name for name, value in (mistakes or {}).items() if near(value, max(tolerance, 0.005)))
    raise AssertionError(f"{given:.6g} is not right: {next(named, None) or _by_units(near, given, right, unit)}. "
                         f"The formula: {formula}" + f" ({unit})" * (unit != "no unit"))


def _is_number(answer: Any) -> bool:
    return isinstance(answer, Real) and not isinstance(answer, bool)


UNITS = {1000: "a thousand times too large", 1 / 1000: "a thousand times too small", 1e6: "a million times too large",
         1e-6: "a million times too small", 60: "sixty times too large", 1 / 60: "sixty times too small"}


def _by_units(near: Callable[..., bool], given: float, right: float, unit: str) -> str:
    if unit == "share":
        if near(100 * right):
            return "that is in percent, and a share is a number from 0 to 1"
    elif times := next((text for times, text in UNITS.items() if near(times * right)), None):
        return f"{times}; look at the units"
    if given * right < 0:
        return "its sign is wrong"
    if given and right and abs(math.log(abs(given / right))) > math.log(5):
        return "it is far off; look at the units, and at what is divided by what"
    return "it is none of the usual mistakes"


def choice(answer: Any, right: Collection[Any], others: Mapping[Any, str], reason: str) -> str:
    """Hold a name against the right ones, and return the reason.

    Args:
        answer: Anything.
        right: What is right.
        others: What is wrong about the others, by name.
        reason: Why the right ones are right.

    Raises:
        AssertionError: Says what is wrong about the answer; or what there is to choose from.
    """
    names = {*right, *others}
    known = (isinstance(answer, str) or _is_number(answer)) and answer in names
    assert known, f"{_short(answer)} is none of: {', '.join(map(str, sorted(names)))}"
    assert answer in right, f"{answer} is not right: {others.get(answer)}"
    return reason


def parts(answer: Any, judges: Mapping[Any, Callable[[Any], str]]) -> str:
    """Hold a dictionary against a judge for each of its entries.

    Raises:
        AssertionError: Names the entry and what is wrong about it; or the entries that are missing or too many.
    """
    wanted = "{" + ", ".join(f"{name!r}: ..." for name in judges) + "}"
    assert isinstance(answer, Mapping), f"the answer is {wanted}, not {_short(answer)}"
    assert set(answer) == set(judges), f"the answer is {wanted}, not {_short(answer)}"
    reasons = {}
    for name, judge in judges.items():
        try:
            reasons[name] = judge(answer[name])
        except AssertionError as wrong:
            raise AssertionError(f"{name}: {wrong}") from None
    if len(set(reasons.values())) == 1:
        return next(iter(reasons.values()))
    return "; ".join(f"{name}: {reason}" for name, reason in reasons.items())


def _short(answer: Any) -> str:
    text = " ".join(repr(answer).split())
    return text if len(text) <= 80 else text[:77] + "..."


def ratio(above: float, below: float) -> float:
    """Return a quotient; NaN, which no answer is near, if there is none."""
    return above / below if below else math.nan


def speedup(answer: Any, one: Record, many: Record, more: Mapping[str, float] | None = None) -> str:
    """Judge the speedup of a run over that of one worker."""
    size, right = many["layout"]["size"], ratio(timed(many), timed(one))
    seconds = [run["timings"]["total_seconds"] for run in (one, many)]
    return number(answer, right, "no unit", f"rate({size}) / rate(1), the rates being images_per_sec of all workers", {
        f"that is rate(1) / rate({size}), upside down: faster is above 1": ratio(1, right),
        "that is the scaling efficiency; the speedup is not divided by the workers": right / size,
        "that is the number of workers, which is what the speedup would be at best": size,
        "that is the quotient of the total seconds, in which start and first epoch weigh most": ratio(*seconds),
        **(more or {}),
    })


def efficiency(answer: Any, one: Record, many: Record) -> str:
    """Judge the scaling efficiency of a run."""
    size, right = many["layout"]["size"], ratio(timed(many), timed(one))
    return number(answer, right / size, "share", f"speedup / {size}, and the speedup is rate({size}) / rate(1)", {
        f"that is the speedup; its share of the {size} workers is wanted": right,
        f"that is upside down: rate(1) / rate({size}) is no speedup": ratio(1, right) / size,
        "that is the share that is lost; what is left is wanted": 1 - right / size,
    })
