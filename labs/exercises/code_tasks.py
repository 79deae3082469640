"""Tasks: functions that students write, and scripts with a planted bug.

A function is graded by properties that it must have, on inputs from the smallest up, so that the example in a hint is
the smallest that fails. A hint names the property, never the right result.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any

import msgspec
import numpy as np

from labs.exercises.grading import NoAnswerError, cut, grade_choice, grade_entries, require, shown


@dataclasses.dataclass(frozen=True)
class Task:
    """A task that is graded without records: a function to write, or a bug to find."""

    text: str
    """In Markdown, on one line."""
    answer: str
    """The form of the answer."""
    grade: Callable[..., str]
    """Takes the answer, or what calls the function of a cell; returns what was checked, or raises AssertionError."""
    stub: Callable | None = None
    """The function to write as the student gets it: its signature, its docstring and a hole. None: a bug to find."""
    on_workers: bool = False
    """Whether `grade` takes the text of the cell, and runs it on real workers."""


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of a student's function."""

    text: str
    """As one would write it: "shard(indices=[0, 1], rank=0)"."""
    args: tuple
    """The arguments after the call, which may have changed them, as plain data."""
    value: Any
    """What it returned."""

    def expect(self, holds: Any, broken: str) -> None:
        """Raise AssertionError with this call as the example, unless a property holds.

        Args:
            holds: Whether the property holds.
            broken: The property that is broken, in words.
        """
        require(holds, f"`{self.text}` returned {shown(self.value)}: {broken}")


class Answer(msgspec.Struct, forbid_unknown_fields=True):
    """What a call of a student's function gave, as plain data; or the call that it makes of one of its arguments."""

    value: Any = None
    args: list[Any] = []
    """The arguments after the call, or those of the call that it makes."""
    error: str = ""
    """The class of the error that it raised."""
    refused: bool = False
    """Whether that is a ValueError."""
    text: str = ""
    needs: str = ""
    """What the cell lacks."""
    call: int | None = None
    """Which argument it calls."""

    @property
    def problem(self) -> str:
        """The error as one short line."""
        return cut(f"{self.error}: {self.text}".removesuffix(": "))


msgspec.convert({}, Answer)  # Prepares the type: two threads that did so at once would crash.
Asker = Callable[[Sequence[Any]], Answer]
"""Calls a student's function with arguments."""


@dataclasses.dataclass(frozen=True)
class StudentFunction:
    """A function that a student wrote, which names its arguments as its stub does."""

    ask: Asker
    stub: Callable
    rng: np.random.Generator
    """Draws further inputs, which differ from student to student and are always the same for one."""
    ask_second: Asker
    """Calls the same function in a second process, where Python's hash() of a text is another."""
    doc: str
    """Its docstring."""

    def __call__(self, *args: Any) -> Call:
        """Call it, and return what came out as plain data.

        Raises:
            AssertionError: It raised an error, or returned nothing.
        """
        return self._call(self.ask, args)

    def in_second_process(self, *args: Any) -> Call:
        """Call it in the second process. Raises: as a plain call."""
        return self._call(self.ask_second, args)

    def whole(self, low: int, high: int) -> int:
        """Return the next drawn whole number from low to high."""
        return int(self.rng.integers(low, high, endpoint=True))

    def real(self, low: float, high: float) -> float:
        """Return the next drawn number from low to high, with four digits after the point."""
        return round(float(self.rng.uniform(low, high)), 4)

    def expect_value_error(self, *args: Any, because: str) -> None:
        """Raise AssertionError unless the function raises ValueError for these arguments.

        Args:
            args: Arguments that it must refuse.
            because: Why, in words.
        """
        answer = self.ask(args)
        did = f"raised {cut(answer.error)}" if answer.error else f"returned {shown(answer.value)}"
        require(answer.refused, f"`{self._text(args)}` {did}, not ValueError: {because}")

    def _call(self, ask: Asker, args: Sequence[Any]) -> Call:
        text, answer = self._text(args), ask(args)
        require(not answer.error, f"`{text}` raised {answer.problem}")
        if answer.value is None:
            raise NoAnswerError(f"no answer yet: `{text}` returned nothing")
        after = tuple(arg if callable(arg) else changed for arg, changed in zip(args, answer.args, strict=True))
        return Call(text, after, answer.value)

    def _text(self, args: Sequence[Any]) -> str:
        names = inspect.signature(self.stub).parameters
        text = ", ".join(f"{name}={shown(value)}" for name, value in zip(names, args, strict=True))
        return f"{self.stub.__name__}({text})"


def code(text: str, stub: Callable, grade: Callable[[StudentFunction], str]) -> Task:
    """Return the task to write a function.

    Args:
        text: What to write and why, in Markdown, on one line.
        stub: The function with its docstring and a hole; the student's function has the same arguments in the same
            order.
        grade: Takes the student's function; returns what was checked, or raises AssertionError with what is wrong.
    """
    def grade_function(ask: Asker, seed: int = 0, ask_second: Asker | None = None, doc: str = "") -> str:
        return grade(StudentFunction(ask, stub, np.random.default_rng(seed), ask_second or ask, doc))

    return Task(text, form(stub), grade_function, stub)


def form(stub: Callable) -> str:
    """Return the form of an answer that is a function."""
    return f"the function `{stub.__name__}{inspect.signature(stub)}`"


HASH = "each worker is a process: Python's hash() of a text, and the order of a set, differ from process to process"
"""Ends the hint where a second process gets another result."""


def number(value: Any) -> float | None:
    """Return a finite number as a Python int or float, and None for anything else."""
    plain = numbers([value], 1)
    return plain[0] if plain else None


def numbers(value: Any, count: int) -> list[float] | None:
    """Return a list of that many finite numbers, and None for anything else."""
    plain = _array(value)
    return plain.tolist() if plain is not None and plain.shape == (count,) and np.isfinite(plain).all() else None


def arrays(value: Any, like: Sequence[np.ndarray]) -> list[np.ndarray] | None:
    """Return a list of arrays with given shapes, and None for anything else."""
    if not isinstance(value, list) or len(value) != len(like):
        return None
    plain = [array for array in map(_array, value) if array is not None]
    return plain if [array.shape for array in plain] == [other.shape for other in like] else None


def _array(value: Any) -> np.ndarray | None:
    """Return what holds numbers as an array, and None for anything else."""
    try:
        plain = np.asarray(value)
    except (TypeError, ValueError):  # Lists of unequal lengths.
        return None
    return plain if plain.dtype.kind in "iuf" else None


def close(one: Any, other: Any) -> bool:
    """Return whether two numbers or arrays are equal up to rounding; NaN equals nothing."""
    return bool(np.allclose(one, other, rtol=1e-5, atol=1e-9))


# Scripts with a planted bug, `debugging/labNN.py`: the student names the symptom and the line.

RIGHT = ""
"""Marks the right choice, which needs no reason."""


def bug(lab: str, *, symptoms: Mapping[str, str], lines: Mapping[int, str], reason: str, how: str = "",
         before: str = "") -> Task:
    """Return the task to find the bug of a script.

    Args:
        lab: "lab02": the script is debugging/lab02.py; solutions/debugging.csv has the repair.
        symptoms: What the script might do wrong, each with what is wrong about that choice; RIGHT for the one it does.
        lines: Numbers of lines, each with what is wrong about that choice; RIGHT for the line with the bug.
        reason: Why that line has that symptom.
        how: What else to run, as a sentence.
        before: What to know before, as sentences.
    """
    choices = ", ".join(f'`"{symptom}"`' for symptom in symptoms)
    begin = f"{before} " if before else ""
    text = (f"{begin}Type `labs launch 2 debugging/{lab}.py` in a terminal, in the project's "
            f"folder: two workers run the script, which has one bug. {how or 'If it hangs, press Ctrl-C.'} "
            "Open the script in an editor that shows line numbers. "
            f"What is the symptom ({choices}), and which line causes it ({', '.join(map(str, lines))})?")
    numbered = {f"line {number}": wrong for number, wrong in lines.items()}
    graders: dict[str, Callable[[Any], str]] = {"symptom": functools.partial(_grade_choice, symptoms, reason),
                                                "line": lambda answer: _grade_choice(numbered, reason, _line(answer))}
    form = f'`{{"symptom": ..., "line": "line {min(lines)}"}}`'
    return Task(text, form, lambda answer: grade_entries(answer, graders))


def _line(answer: Any) -> Any:
    """Return "line 31" for 31, "31" and "Line 31"; return any other answer unchanged."""
    is_number = isinstance(answer, Integral) and not isinstance(answer, bool)
    number = re.fullmatch(r"\s*(?:line)?\s*(\d+)\s*", str(answer) if is_number or isinstance(answer, str) else "", re.I)
    return f"line {number[1]}" if number else answer


def _grade_choice(choices: Mapping[str, str], reason: str, answer: Any) -> str:
    wrong = {choice: hint for choice, hint in choices.items() if hint != RIGHT}
    return grade_choice(answer, choices.keys() - wrong.keys(), wrong, reason)
