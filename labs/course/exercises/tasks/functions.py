"""Calls of a student's function with small inputs, and hints that have such a call as their example."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import warnings
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import numpy as np

from labs.course.exercises.grading import described, require, shown


@dataclasses.dataclass(frozen=True)
class Task:
    """A task that is graded without records: a function to write, or a bug to find."""

    text: str
    """In Markdown, on one line."""
    answer: str
    """The form of the answer."""
    grade: Callable[[Any], str]
    """Takes the answer; returns what was checked, or raises AssertionError with what is wrong."""
    stub: Callable | None = None
    """The function to write as the student gets it: its signature, its docstring and a hole. None: a bug to find."""
    alone: bool = False
    """Whether the function is called in a separate process; `grade` itself calls it in this one."""


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of a student's function."""

    text: str
    """As one would write it: "shard(indices=[0, 1], rank=0)"."""
    args: tuple
    """The arguments after the call, which may have changed them."""
    value: Any
    """What it returned."""

    def expect(self, holds: Any, broken: str) -> None:
        """Raise AssertionError with this call as the example, unless a property holds.

        Args:
            holds: Whether the property holds.
            broken: The property that is broken, in words.
        """
        require(holds, f"`{self.text}` returned {shown(self.value)}: {broken}")


@dataclasses.dataclass(frozen=True)
class StudentFunction:
    """A function that a student wrote, which names its arguments as its stub does."""

    function: Callable
    stub: Callable

    def __call__(self, *args: Any) -> Call:
        """Call it with copies of the arguments.

        Raises:
            AssertionError: It raised an error, or returned nothing.
        """
        text, given, value, error = self._run(args)
        require(error is None, f"`{text}` raised {described(error)}")
        require(value is not None, f"no answer yet: `{text}` returned nothing")
        return Call(text, given, value)

    def expect_value_error(self, *args: Any, because: str) -> None:
        """Raise AssertionError unless the function raises ValueError for these arguments.

        Args:
            args: Arguments that it must refuse.
            because: Why, in words.
        """
        text, _, value, error = self._run(args)
        did = f"raised {type(error).__name__}" if error else f"returned {shown(value)}"
        require(isinstance(error, ValueError), f"`{text}` {did}, not ValueError: {because}")

    def _run(self, args: Sequence[Any]) -> tuple[str, tuple, Any, BaseException | None]:
        names = inspect.signature(self.stub).parameters
        text = ", ".join(f"{name}={shown(value)}" for name, value in zip(names, args, strict=True))
        given, value, error = copy.deepcopy(tuple(args)), None, None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                value = self.function(*given)
            except BaseException as raised:  # A student's function may raise anything, such as SystemExit.
                error = raised
        return f"{self.stub.__name__}({text})", given, value, error


def code(text: str, stub: Callable, grade: Callable[[StudentFunction], str], *, alone: bool = True) -> Task:
    """Return the task to write a function.

    Args:
        text: What to write and why, in Markdown, on one line.
        stub: The function with its docstring and a hole; the student's function has the same arguments in the same
            order.
        grade: Takes the student's function; returns what was checked, or raises AssertionError with what is wrong.
        alone: Whether `grade` needs a separate process, because it calls the function.
    """
    signature = f"{stub.__name__}{inspect.signature(stub)}"

    def grade_answer(answer: Any) -> str:
        require(callable(answer), f"the answer is a function, `{signature}`, not {shown(answer)}")
        return grade(StudentFunction(answer, stub))

    return Task(text, f"the function `{signature}`", grade_answer, stub, alone)


def number(value: Any) -> float | None:
    """Return a finite number as a float, and None for anything else."""
    if isinstance(value, bool | np.bool_) or not (isinstance(value, Real) or _is_scalar_array(value)):
        return None
    try:
        plain = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return plain if np.isfinite(plain) else None


def _is_scalar_array(value: Any) -> bool:
    return hasattr(value, "shape") and tuple(value.shape) == () and hasattr(value, "__float__")


def numbers(value: Any, count: int) -> list[float] | None:
    """Return a list, tuple or array of that many finite numbers as a list, and None for anything else."""
    if not isinstance(value, list | tuple | np.ndarray) or len(value) != count:
        return None
    plain = [number(each) for each in value]
    return None if None in plain else plain  # type: ignore[return-value]


def arrays(value: Any, like: Sequence[np.ndarray]) -> list[np.ndarray] | None:
    """Return a list or tuple of arrays with given shapes as a list, and None for anything else."""
    if not isinstance(value, list | tuple | np.ndarray) or len(value) != len(like):
        return None
    try:
        plain = [np.asarray(each) for each in value]
    except (TypeError, ValueError):  # Lists of unequal lengths.
        return None
    fits = all(each.shape == other.shape and each.dtype.kind in "fiu" for each, other in zip(plain, like, strict=True))
    return plain if fits else None


def close(one: Any, other: Any) -> bool:
    """Return whether two numbers or arrays are equal up to rounding; NaN equals nothing."""
    return bool(np.allclose(one, other, rtol=1e-5, atol=1e-9))
