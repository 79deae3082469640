"""The fresh process that runs an exercise's cell and calls its function. It compares nothing and gives no marks.

    python -P -s child.py CPU_SECONDS [confined]

Reads requests on its standard input and answers each on its standard output, one line of JSON each. This file imports
nothing of the kit: `fresh_process` starts it, and `labs grade` in a container that has no other file of the kit.
"""

from __future__ import annotations

import base64
import builtins
import contextlib
import functools
import importlib.machinery
import json
import math
import os
import resource
import signal
import sys
import types
import warnings
from collections.abc import Callable, Collection, Mapping, Set
from numbers import Integral, Real
from typing import Any

import numpy as np

KIT = ("labs", "solutions", "tests")
MEMORY = 4 << 30
"""Memory that the cell may use, in bytes."""
LARGEST_FILE = 64 << 20
MOST_PROCESSES = 64
"""Processes and threads at a time, in a container. Elsewhere the kernel would count all processes of the user."""
NOBODY = 65534


# The cell.

class KitError(ImportError):
    """The cell uses the kit's own code."""


class Kit(types.ModuleType):
    """A stand-in for a module or a name of the kit: a cell may import it, as its page does, but not call it."""

    __path__: list[str] = []
    answers: dict[str, Any] = {}
    """What the cell gave to `exercises.show` and `exercises.check`, by the id of the exercise."""

    def __getattr__(self, name: str) -> Kit:
        if name.startswith("__"):
            raise AttributeError(name)
        return Kit(f"{self.__name__}.{name}")

    def __call__(self, *args: Any, **options: Any) -> None:
        if self.__name__ == "labs.course.exercises.show":
            self.answers.update(args[0])
        elif self.__name__ == "labs.course.exercises.check":
            self.answers[args[0]] = args[1]
        else:
            raise KitError(f"this cell calls the kit's own `{self.__name__}`, which a fresh process does not have: "
                           "write it in this cell")


class Finder:
    """Finds stand-ins for all modules of the kit."""

    def find_spec(self, name: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        known = name.partition(".")[0] in KIT
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if known else None  # type: ignore[arg-type]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Kit:
        return Kit(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Do nothing: a stand-in has no code."""


class Nothing:
    """A stand-in for IPython: a cell's magics do nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **options: None


def define(cell: str, name: str) -> Callable[..., Any]:
    """Run a cell and return its function: what it gives to `exercises.show`, or else what it defines under the name."""
    names: dict[str, Any] = {"__name__": "__main__", **ALWAYS}
    exec(compile(cell, f"{name}.py", "exec"), names)
    given = [answer for task, answer in Kit.answers.items() if task.partition(".")[2] == name]
    others = [value for value in names.values() if isinstance(value, types.FunctionType)]
    functions = [each for each in (*given, names.get(name), *reversed(others)) if callable(each)]
    if not functions:
        raise NameError(f"the cell defines no function {name}", name=name)
    return functions[0]


ALWAYS = {"np": np, "math": math, "exercises": Kit("labs.course.exercises"), "get_ipython": Nothing}
"""What a cell may use without an import, in the notebook's check as in `labs grade`."""


# The process.

def main(cpu_seconds: str, confined: str = "") -> None:
    """Answer requests to the end of the input."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for target, source in ((0, nowhere), (1, 2), (2, nowhere)):
        os.dup2(source, target)
    sys.stderr = sys.stdout  # What the cell prints, without the messages of TensorFlow's C++.
    warnings.simplefilter("ignore")
    signal.alarm(4 * int(cpu_seconds))  # The process that asks may be gone.
    limit(int(cpu_seconds), bool(confined))

    def called_back(place: int, *args: Any) -> Any:
        answers.write(dumps({"callback": place, "args": list(args)}))
        answer = loads(next(requests))
        if "error" in answer:
            raise raised(answer)
        return answer["value"]

    function: Callable[..., Any] = called_back
    sys.meta_path.insert(0, Finder())
    for line in requests:
        request = loads(line)
        try:
            if "cell" in request:
                function = define(request["cell"], request["name"])
                answer: dict[str, Any] = {"doc": str(function.__doc__ or ""), "args": []}
            else:
                args = [functools.partial(called_back, place) if place in request["callbacks"] else arg
                        for place, arg in enumerate(request["args"])]
                answer = {"value": function(*args), "args": args}
            text = dumps(answer)
        except BaseException as error:
            text = dumps(described(error))
        sys.stdout.flush()
        answers.write(text)


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


# Plain data, as JSON: no pickle, no classes.

NUMBERS = "biuf"
"""Kinds of arrays that are sent: bool, integers and floats. Others become lists."""


def dumps(value: Any) -> bytes:
    """Return a value as one line of JSON; whatever is not plain data becomes the name of its type."""
    return json.dumps(_encoded(value)).encode() + b"\n"


def loads(line: bytes) -> Any:
    """Return the value in one line of JSON.

    Raises:
        ValueError: The line is not one that `dumps` writes.
    """
    try:
        return _decoded(json.loads(line))
    except (LookupError, TypeError, RecursionError, OverflowError) as problem:
        raise ValueError(f"not plain data: {problem}") from None


def described(problem: BaseException) -> dict[str, str]:
    """Return an exception as plain data: the first of its classes that Python has itself, its text, what is missing."""
    kind = next(each.__name__ for each in type(problem).__mro__ if getattr(builtins, each.__name__, None) is each)
    text, needs = "", ""
    with contextlib.suppress(Exception):  # Its text may raise.
        text = str(problem)[:1000]
    if type(problem) is NameError and problem.name:
        needs = f"this cell needs `{problem.name}`, which it does not define: define it in this cell"
    elif isinstance(problem, ModuleNotFoundError):
        needs = (f"this cell imports `{problem.name}`, which is not there in a fresh process: put its code into this "
                 "cell")
    elif isinstance(problem, KitError):
        needs = text
    return {"error": kind, "text": text, "needs": needs}


def raised(answer: Mapping[str, Any]) -> Exception:
    """Return the exception that `described` made plain; RuntimeError for what is not an ordinary one."""
    name, text = str(answer["error"]), str(answer["text"])
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        with contextlib.suppress(TypeError):  # UnicodeDecodeError takes five arguments.
            return kind(text)
    return RuntimeError(f"{name}: {text}")


class Unknown:
    """A value that is not plain data."""

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"a {self.name}"


def _encoded(value: Any) -> Any:
    """Return a value in JSON's types; other types and lists become a list whose first entry names the type."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Integral) and not hasattr(value, "dtype"):
        return int(value)
    if isinstance(value, Real) and not hasattr(value, "dtype"):
        return float(value)
    if isinstance(value, bytes | bytearray):
        return ["bytes", base64.b64encode(value).decode()]
    if isinstance(value, Mapping):
        return ["dict", *([_encoded(key), _encoded(entry)] for key, entry in value.items())]
    if hasattr(value, "__array__"):  # Of numpy, pandas or TensorFlow.
        array = np.asarray(value)
        if array.dtype.kind in NUMBERS:
            return ["array", array.dtype.str, list(array.shape), base64.b64encode(array.tobytes()).decode(),
                    isinstance(value, np.generic)]
        plain = array.tolist()
        return ["other", type(value).__name__] if plain is value else _encoded(plain)
    if isinstance(value, tuple | Set):
        return ["tuple" if isinstance(value, tuple) else "set", *map(_encoded, value)]
    return ["list", *map(_encoded, value)] if isinstance(value, Collection) else ["other", type(value).__name__]


def _decoded(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    kind, *rest = value
    containers: dict[str, Callable[..., Any]] = {"list": list, "tuple": tuple, "set": set}
    if kind in containers:
        return containers[kind](map(_decoded, rest))
    if kind == "dict":
        return {_decoded(key): _decoded(entry) for key, entry in rest}
    others: dict[str, Callable[..., Any]] = {"array": _array, "bytes": base64.b64decode, "other": Unknown}
    return others[kind](*rest)


def _array(dtype: str, shape: list[int], content: str, scalar: bool) -> Any:
    if np.dtype(dtype).kind not in NUMBERS:
        raise ValueError(f"arrays of {dtype} are not sent")
    array = np.frombuffer(base64.b64decode(content), np.dtype(dtype)).reshape(shape).copy()
    return array[()] if scalar else array


if __name__ == "__main__":
    main(*sys.argv[1:])
