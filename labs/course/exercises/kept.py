"""Answers kept for the hand-in: `exercises.check` saves what it judges in a working copy, in answers/ beside it."""

from __future__ import annotations

import ast
import inspect
import json
import os
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from labs.course.exercises.grading import Record
from labs.course.exercises.two_workers import source_of
from labs.run import atomic
from labs.run.paths import work_dir
from labs.run.text import one_line


def keep(question: str, answer: Any, about: Sequence[Record]) -> None:
    """Save an answer if this process runs a working copy. None, and a function without a body, are no answers.

    Args:
        question: Its id: "lab04.q1".
        answer: A value, or the student's function, of which the source is saved.
        about: The records from which it was judged.
    """
    try:
        # A kernel starts in the folder of its notebook.
        if answer is None or not os.path.samefile(os.curdir, work_dir()):
            return
        value = {"source": whole_source(answer)} if callable(answer) else {"answer": plain(answer)}
        atomic.write_json(_file(question), value | {"runs": [run["run"] for run in about]})
    except (FileNotFoundError, AssertionError):
        return  # There are no working copies, or `check` has said what is wrong.
    except Exception as problem:
        print(f"{question}: not kept for the hand-in: {one_line(problem)}")


def load(question: str) -> dict[str, Any] | None:
    """Return what was saved for a question: "answer" or "source", and the names of its "runs"; None if nothing was."""
    try:
        kept = json.loads(atomic.read_text(_file(question)))
    except (OSError, ValueError):
        return None
    valid = isinstance(kept, dict) and ("answer" in kept or isinstance(kept.get("source"), str))
    return kept if valid else None


def _file(question: str) -> Path:
    return work_dir() / "answers" / f"{question}.json"


def plain(value: Any) -> Any:
    """Return an answer as JSON values; what JSON cannot hold becomes text, as `repr` writes it."""
    if hasattr(value, "tolist"):  # Of numpy or pandas.
        return plain(value.tolist())
    if isinstance(value, dict):
        return {str(plain(key)): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)


def whole_source(function: Callable) -> str:
    """Return the source of a function after the imports, functions and plain values of other cells that it uses.

    Raises:
        AssertionError: It has no body yet, or its source is not found.
    """
    parts: dict[str, str] = {}
    _collect(function, parts)
    return "\n\n".join(parts.values()) + "\n"


def _collect(function: Callable, parts: dict[str, str]) -> None:
    """Add the source of a function to the parts, after what it uses; by name, each once."""
    function = _undecorated(function)
    source, name = source_of(function)
    parts[name] = ""  # It may call itself.
    used = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    for other in sorted(used - {*function.__code__.co_varnames}):
        if other not in parts and other in function.__globals__:
            _collect_global(other, function.__globals__[other], parts)
    del parts[name]
    parts[name] = source.rstrip("\n")


def _undecorated(function: Any) -> Any:
    return inspect.unwrap(getattr(function, "python_function", function))  # The former is that of a tf.function.


def _collect_global(name: str, value: Any, parts: dict[str, str]) -> None:
    """Add the line or the source that defines a global of a notebook, or a comment that there is none."""
    home, qualified = _home(value), getattr(value, "__qualname__", getattr(value, "__name__", ""))
    if isinstance(value, types.ModuleType):
        parts[name] = f"import {value.__name__} as {name}"
    elif inspect.isfunction(_undecorated(value)) and home == "__main__":
        try:
            _collect(value, parts)
        except AssertionError as problem:
            parts[name] = f"# {name}: {problem}"
    elif qualified.isidentifier() and home not in (None, "__main__", "builtins"):
        parts[name] = f"from {home} import {qualified} as {name}"
    elif isinstance(value, bool | int | float | str | list | tuple | dict) and len(text := repr(value)) < 10_000:
        parts[name] = f"{name} = {text}"
    else:
        parts[name] = f"# {name}, of type {type(value).__name__}, is not packed"


def _home(value: Any) -> str | None:
    """Return the module from which a value can be imported; a ufunc, as those of scipy.special, names none."""
    name = getattr(value, "__name__", "")
    public = [module for module, loaded in sys.modules.items() if module != "__main__" and "._" not in module
              and name and getattr(loaded, "__dict__", {}).get(name) is value]
    return getattr(value, "__module__", None) or min(public, key=len, default=None)
