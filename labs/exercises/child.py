"""The fresh process that runs an exercise's cell and calls its function. It compares nothing and gives no marks.

Reads pickled arguments on its standard input, first the cell and the name of its function, and answers each with a line
of JSON on its standard output. Imports nothing of the kit: in a container, `labs grade` gives it no other file.
"""

import ast
import contextlib
import json
import math
import os
import pickle
import re
import sys
import types
from collections.abc import Callable, Collection, Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np

KIT = "labs", "solutions"


def plain(value: Any) -> Any:
    """Return a value as plain data: arrays and sets as lists, whatever else as the name of its type."""
    if hasattr(value, "__array__"):  # Of numpy, pandas or TensorFlow.
        value = np.asarray(value).tolist()
    if value is None or isinstance(value, str | bytes | bool):
        return value
    if isinstance(value, Mapping):
        return {plain(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, Integral | Real):
        return int(value) if isinstance(value, Integral) else float(value)
    if not isinstance(value, Collection):
        return f"a {type(value).__name__}"
    return tuple(map(plain, value)) if isinstance(value, tuple) else list(map(plain, value))


def loads(text: str | bytes) -> Any:
    """Return the value in a JSON text; keys that are whole numbers are numbers again, as in `{32: 1.7}`."""
    return json.loads(text, object_pairs_hook=lambda pairs: {
        int(name) if re.fullmatch(r"-?[0-9]{1,9}", name) else name: value for name, value in pairs})


def define(cell: str, name: str, **more: Any) -> Callable[..., Any]:
    """Run a cell and return the function that it defines under a name; NameError if there is none.

    The cell may use `np`, `math`, magics and `more`. Its imports of the kit and calls of `exercises` are left out.
    """
    tree = ast.parse(cell)
    tree.body = [each for each in tree.body if not re.match(r"(from|import) (labs|solutions)\b|exercises\.\w+\(",
                                                            ast.unparse(each))]
    sys.modules.update(dict.fromkeys(KIT))  # type: ignore[arg-type]  # An import fails, as it does in a container.
    # Pickle, dataclasses and typing look names up in the module that runs.
    sys.modules["__main__"] = page = types.ModuleType("__main__")
    magics = types.SimpleNamespace(run_line_magic=print, system=print)
    vars(page).update({"np": np, "math": math, "display": print, "get_ipython": lambda: magics}, **more)
    exec(compile(tree, f"{name}.py", "exec", dont_inherit=True), vars(page))
    if not callable(function := vars(page).get(name)):
        raise NameError(name=name)
    return function


def answer_call(function: Callable[..., Any], args: Any) -> str:
    """Return what a call returns, and the arguments after it, as JSON; or the error that it raises."""
    try:
        return json.dumps(plain({"value": function(*args), "args": args}), default=list)  # Bytes.
    except BaseException as problem:
        return json.dumps(describe_error(problem))


def describe_error(problem: BaseException) -> dict[str, Any]:
    """Return an error as plain data: its class, its text, and what the cell needs."""
    name, needs, missing = getattr(problem, "name", None), "", isinstance(problem, ModuleNotFoundError)
    if type(problem) is NameError and name:
        needs = f"this cell needs `{name}`, which it does not define: define it in this cell"
    elif missing and name:
        needs = f"this cell imports `{name}`, which is not installed here; put the code that it needs into this cell"
    return {"error": f"{type(problem).__name__}: {str(problem)[:1000]}".removesuffix(": "), "needs": needs,
            "not_installed": missing and str(name).split(".")[0] not in KIT, "refused": isinstance(problem, ValueError)}


def main() -> None:
    """Answer calls to the end of the input."""
    calls, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nowhere, descriptor)
    functions: list[Callable] = [lambda cell, name: functions.append(define(cell, name))]
    with contextlib.suppress(EOFError):
        while True:
            args = pickle.load(calls)
            answers.write(answer_call(functions[-1], args).encode() + b"\n")


if __name__ == "__main__":
    main()
