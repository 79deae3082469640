"""Tasks: functions that students write, and scripts with a planted bug.

A function is graded by properties that it must have, on inputs from the smallest up, so that the example in a hint is
the smallest that fails. A hint names the property, never the right result.
"""

import contextlib
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from labs.exercises.grading import NoAnswerError, format_value, grade_choice, grade_entries, require, shorten

Asker = Callable[[Sequence[Any]], dict[str, Any]]
"""Calls a student's function with arguments, and returns what `child.answer_call` does."""


@dataclasses.dataclass(frozen=True)
class Task:
    """A function to write, with its arguments, or a bug to find.

    `grade` takes the student's function, the text of a cell that runs on real workers, or the answer.
    """

    grade: Callable[..., str]
    arguments: tuple[str, ...] = ()
    on_workers: bool = False


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of a student's function, as one would write it, its arguments after the call, and what it returned."""

    text: str
    args: Sequence[Any]
    value: Any

    def expect(self, holds: Any, broken: str) -> None:
        """Raise AssertionError with this call as the example, and with what is broken, unless a property holds."""
        require(holds, f"`{self.text}` returned {format_value(self.value)}: {broken}")

    def arrays(self, value: Any, like: Sequence[np.ndarray], problem: str) -> list[np.ndarray]:
        """Return a list of arrays with given shapes; raise AssertionError with the problem for anything else."""
        found = []
        with contextlib.suppress(ValueError):  # Lists of unequal lengths.
            found = list(map(np.asarray, value)) if isinstance(value, list) else []
        self.expect(len(found) == len(like) and all(
            array.dtype.kind in "iuf" and array.shape == np.shape(other)
            for array, other in zip(found, like, strict=True)), problem)
        return found

    def numbers(self, value: Any, count: int, problem: str) -> list[float]:
        """Return a list of that many finite numbers; raise AssertionError with the problem for anything else."""
        (found,) = self.arrays([value], [np.zeros(count)], problem)
        self.expect(np.isfinite(found).all(), problem)
        return found.tolist()

    def number(self, problem: str = "the result is a number") -> float:
        """Return the value as a finite number; raise AssertionError with the problem if it is not one."""
        return self.numbers([self.value], 1, problem)[0]

    def expect_number(self, right: float, broken: str, mistakes: Mapping[str, float] | None = None) -> None:
        """Raise AssertionError unless the value is the right number, with the hint for a typical mistake's value."""
        self.expect_close(self.number(), right, broken, mistakes or {})

    def expect_close(self, value: Any, right: Any, broken: str, mistakes: Mapping[str, Any], rel_tol: float = 1e-5
                     ) -> None:
        """Do the same for a number or an array in the value."""
        for hint, wrong in mistakes.items():
            self.expect(close(right, wrong, rel_tol) or not close(value, wrong, rel_tol), hint)
        self.expect(close(value, right, rel_tol), broken)


@dataclasses.dataclass(frozen=True)
class StudentFunction:
    """A function that a student wrote, in its cell.

    `rng` draws further inputs, which differ from student to student and are always the same for one. `start` returns
    the process of a number, 1 or 2, between which Python's hash() of a text differs.
    """

    name: str
    arguments: Sequence[str]
    start: Callable[[int], Asker]
    rng: np.random.Generator
    cell: str

    def __call__(self, *args: Any, second_process: bool = False) -> Call:
        """Call it, and return what came out as plain data; AssertionError if that is an error, or nothing."""
        text, answer = self._text(args), self.start(1 + second_process)(args)
        require("error" not in answer, f"`{text}` raised {shorten(str(answer.get('error')))}")
        if answer["value"] is None:
            raise NoAnswerError(f"no answer yet: `{text}` returned nothing")
        return Call(text, answer["args"], answer["value"])

    def whole(self, low: int, high: int) -> int:
        """Return the next drawn whole number from low to high."""
        return int(self.rng.integers(low, high, endpoint=True))

    def real(self, low: float, high: float) -> float:
        """Return the next drawn number from low to high, with four digits after the point."""
        return round(float(self.rng.uniform(low, high)), 4)

    def expect_value_error(self, *args: Any, because: str) -> None:
        """Raise AssertionError, with the reason, unless the function raises ValueError for these arguments."""
        answer = self.start(1)(args)
        did = f"raised {shorten(answer['error'])}" if "error" in answer else f"returned {format_value(answer['value'])}"
        require(answer.get("refused"), f"`{self._text(args)}` {did}, not ValueError: {because}")

    def _text(self, args: Sequence[Any]) -> str:
        given = zip(self.arguments, args, strict=True)
        return f"{self.name}({', '.join(f'{name}={format_value(value)}' for name, value in given)})"


def code(arguments: str, grade: Callable[[StudentFunction], str]) -> Task:
    """Return the task to write a function with arguments, as the page has them: "n, speedup"."""
    return Task(grade, tuple(arguments.split(", ")))


HASH = "each worker is a process: Python's hash() of a text, and the order of a set, differ from process to process"
"""Ends the hint where a second process gets another result."""


def close(one: Any, other: Any, rel_tol: float = 1e-5) -> bool:
    """Return whether two numbers or arrays are equal up to rounding; NaN equals nothing."""
    return bool(np.allclose(one, other, rtol=rel_tol, atol=1e-9))


# Scripts with a planted bug, `debugging/labNN.py`: the student names the symptom and the line.

COMMON = {
    "the workers end with different weights": "the script broadcasts the weights and averages the gradients",
    "some images are never seen": "every image is in the share of one worker, in every epoch",
    "it never ends": "all workers take equally many steps, and call the same collectives in the same order"}
SHARDED = "each worker takes every size-th image: together they take all of them"
AVERAGED = "the optimizer averages the gradients, as it should"
BROADCAST = "it makes the weights equal at the start"
"""What is wrong about symptoms that most pages offer, and right about lines that most scripts have."""


def bug(symptom: str, line: int, reason: str, symptoms: Mapping[str, str], lines: Mapping[int, str]) -> Task:
    """Return the task to find a script's bug; each other choice of the page has what is wrong about it."""
    others, numbered = COMMON | dict(symptoms), {f"line {number}": hint for number, hint in lines.items()}
    others.pop(symptom, None)

    def grade_line(given: Any) -> str:
        number = re.sub(r"(?i)\s*line\s*|\s", "", str(given))  # 31, "31" and "Line 31".
        return grade_choice(f"line {number}", {f"line {line}"}, numbered, reason)

    return Task(lambda answer: grade_entries(answer, {
        "symptom": lambda given: grade_choice(given, {symptom}, others, reason), "line": grade_line}))
