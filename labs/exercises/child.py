"""The fresh process that runs an exercise's cell and calls its function. It compares nothing and gives no marks.

    python -P -s child.py CPU_SECONDS [confined]

Reads pickled arguments on its standard input, first those of `begin`, and answers each with a line of JSON on its
standard output. Imports nothing of the kit: in a container, `labs grade` gives it no other file.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import math
import os
import pickle
import re
import resource
import signal
import sys
import types
from collections.abc import Callable, Collection, Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np

KIT = ("labs", "solutions", "tests")
MEMORY, LARGEST_FILE = 4 << 30, 64 << 20
"""What the cell may use, in bytes."""
MOST_PROCESSES, NOBODY = 64, 65534
"""Processes and threads at a time, in a container; elsewhere the kernel would count all processes of the user."""


# Plain data: what an answer is in the notebook's check, in the hand-in and for `labs grade`.

def plain(value: Any) -> Any:
    """Return a value in JSON's types: arrays and sets as lists, whatever is not plain data as the name of its type."""
    if hasattr(value, "__array__"):  # Of numpy, pandas or TensorFlow.
        value = np.asarray(value).tolist()
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, Mapping):
        return {repr(key) if isinstance(key, tuple) else plain(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, Integral | Real):
        return int(value) if isinstance(value, Integral) else float(value)
    is_list = isinstance(value, Collection) and not isinstance(value, bytes | bytearray)
    return [plain(entry) for entry in value] if is_list else f"a {type(value).__name__}"


def dumps(value: Any) -> str:
    """Return a value as one line of JSON; raises an error of any class for one that contains itself, for example."""
    return json.dumps(plain(value))


def loads(text: str | bytes) -> Any:
    """Return the value in a JSON text; keys of dictionaries that are numbers are numbers again, as in `{32: 1.7}`.

    Raises:
        ValueError: The text is not JSON.
    """
    try:
        return json.loads(text, object_pairs_hook=lambda pairs: {_parse_key(name): value for name, value in pairs})
    except RecursionError:
        raise ValueError("too deeply nested") from None


def _parse_key(name: str) -> str | float:
    is_number = re.fullmatch(r"-?\d{1,9}(\.\d{1,9})?", name, re.ASCII)
    return name if not is_number else float(name) if is_number[1] else int(name)


# The cell.

class KitError(ImportError):
    """The cell uses the kit's own code."""


class Kit(types.ModuleType):
    """A stand-in for a module or a name of the kit: a cell may import it, as its page does, but not call it."""

    def __getattr__(self, name: str) -> Kit:
        if name.startswith("__"):
            raise AttributeError(name)
        return EXERCISES if name == "exercises" else Kit(f"{self.__name__}.{name}")

    def __call__(self, *args: Any, **options: Any) -> None:
        raise KitError(f"this cell calls the kit's own `{self.__name__}`, which a fresh process does not have: write "
                       "it in this cell")


ANSWERS: dict[str, Any] = {}
"""What the cell gives to `exercises.show` and `exercises.check`, by the id of the exercise."""
EXERCISES = Kit("labs.exercises")
vars(EXERCISES).update(show=lambda answers, *_, **__: ANSWERS.update(answers),
                       check=lambda question, answer, *_, **__: ANSWERS.update({question: answer}))
IMPORT = builtins.__import__


def import_or_stand_in(name: str, *args: Any, **options: Any) -> types.ModuleType:
    """Import a module, or a stand-in for one of the kit, where a cell says `import`."""
    if name.partition(".")[0] not in KIT:
        return IMPORT(name, *args, **options)
    return EXERCISES if name == EXERCISES.__name__ else Kit(name)


def ignore(*args: Any, **options: Any) -> None:
    """Do nothing, in place of a cell's magics."""


ALWAYS = {"np": np, "math": math, "exercises": EXERCISES, "display": ignore,
          "get_ipython": lambda: types.SimpleNamespace(run_line_magic=ignore, system=ignore)}
"""What a cell may use without an import, in the notebook's check as in `labs grade`."""


def define(cell: str, name: str, **more: Any) -> Callable[..., Any]:
    """Run a cell and return its function: what it gives to `exercises.show`, or else what it defines under the name.

    Args:
        cell: The text of the cell.
        name: The name of the function.
        more: What else the cell may use without an import.

    Raises:
        NameError: The cell defines no such function.
    """
    builtins.__import__ = import_or_stand_in
    # Pickle, dataclasses and typing look names up in the module that runs.
    sys.modules["__main__"] = page = types.ModuleType("__main__")
    vars(page).update(ALWAYS, **more)
    exec(compile(cell, f"{name}.py", "exec", dont_inherit=True), vars(page))
    given = [answer for task, answer in ANSWERS.items() if task.partition(".")[2] == name]
    function = given[-1] if given else vars(page).get(name)
    if not callable(function):
        raise NameError(f"the cell defines no function {name}", name=name)
    return function


def code_of(function: Any) -> types.CodeType | None:
    """Return the code of a function, also of a partial, a decorated function or a callable object; None if unknown."""
    for _ in range(10):
        inner = [getattr(function, name) for name in ("__wrapped__", "__func__", "func", "python_function", "pyfunc")
                 if hasattr(function, name)]
        if not inner and hasattr(function, "__code__"):
            return function.__code__
        function = inner[0] if inner else type(function).__call__
    return None


# The process.

def answer_call(function: Callable[..., Any], args: Any) -> str:
    """Return what a call returns, and the arguments after it, as JSON; or the error that it raises."""
    try:
        return dumps({"value": function(*args), "args": args})
    except BaseException as problem:
        return dumps(describe_error(problem))


def describe_error(problem: BaseException) -> dict[str, Any]:
    """Return an error as plain data: its class, its text, and what the cell needs."""
    text, needs = "", ""
    with contextlib.suppress(Exception):  # Its text may raise.
        text = str(problem)[:1000]
    name = getattr(problem, "name", None)
    if type(problem) is NameError and name:
        needs = f"this cell needs `{name}`, which it does not define: define it in this cell"
    elif isinstance(problem, ModuleNotFoundError) and name and "." not in name and name not in sys.stdlib_module_names:
        needs = (f"this cell imports `{name}`, which is not installed here; if you wrote that module, put its code "
                 "into this cell")
    elif isinstance(problem, KitError):
        needs = text
    return {"error": type(problem).__name__, "refused": isinstance(problem, ValueError), "text": text, "needs": needs}


def main(cpu_seconds: str, confined: str = "") -> None:
    """Answer calls to the end of the input."""
    calls, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nowhere, descriptor)
    signal.alarm(4 * int(cpu_seconds))  # The process that asks may be gone.
    limit(int(cpu_seconds), bool(confined))
    defined: list[Callable[..., Any]] = []

    def begin(cell: str, name: str) -> dict[str, Any]:
        defined.append(define(cell, name))
        return {"doc": str(defined[0].__doc__ or ""), "line": getattr(code_of(defined[0]), "co_firstlineno", 0)}

    with contextlib.suppress(EOFError):
        while True:
            args = pickle.load(calls)
            answers.write(answer_call(defined[0] if defined else begin, args).encode() + b"\n")


def limit(cpu_seconds: int, confined: bool) -> None:
    """Set limits that the process cannot raise."""
    limits = {resource.RLIMIT_CPU: cpu_seconds, resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: LARGEST_FILE}
    with contextlib.suppress(FileNotFoundError), open("/proc/self/statm") as file:  # macOS has none.
        limits[resource.RLIMIT_AS] = int(file.read().split()[0]) * resource.getpagesize() + MEMORY
    if confined:
        limits[resource.RLIMIT_NPROC] = MOST_PROCESSES
    for name, value in limits.items():
        _, most = resource.getrlimit(name)
        lowest = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(name, (lowest, lowest))
    if confined and os.geteuid() == 0:  # The kernel exempts root from the limit of processes.
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


if __name__ == "__main__":
    main(*sys.argv[1:])
