"""Plain data as JSON between the grader and the process that calls a student's function: no pickle, no classes."""

from __future__ import annotations

import base64
import builtins
import contextlib
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

NUMBERS = "biuf"
"""Kinds of arrays that are sent: bool, integers and floats. The kind of others, such as objects, is only named."""


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


def error(problem: BaseException) -> dict[str, str]:
    """Return an exception as plain data: its text, and the first of its classes that Python has itself."""
    kind = next(each.__name__ for each in type(problem).__mro__ if getattr(builtins, each.__name__, None) is each)
    try:
        return {"error": kind, "text": str(problem)[:1000]}
    except Exception:
        return {"error": kind, "text": ""}


def raised(answer: dict[str, Any]) -> Exception:
    """Return the exception that `error` described; RuntimeError for what is not an ordinary one."""
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
    if value is None or type(value) in (bool, str, int, float):
        return value
    if type(value) in (list, tuple, set, frozenset):
        return [type(value).__name__, *map(_encoded, value)]
    if isinstance(value, dict):
        return ["dict", *([_encoded(key), _encoded(entry)] for key, entry in value.items())]
    if type(value) in (bytes, bytearray):
        return ["bytes", base64.b64encode(value).decode()]
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in NUMBERS:
        array = np.asarray(value)
        return ["array", array.dtype.str, list(array.shape), base64.b64encode(array.tobytes()).decode(),
                isinstance(value, np.generic)]
    return ["other", type(value).__name__]


def _decoded(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    kind, *rest = value
    containers = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
    if kind in containers:
        return containers[kind](map(_decoded, rest))
    if kind == "dict":
        return {_decoded(key): _decoded(entry) for key, entry in rest}
    others: dict[str, Callable[..., Any]] = {"array": _array, "bytes": base64.b64decode, "other": Unknown}
    return others[kind](*rest)


def _array(dtype: str, shape: Sequence[int], content: str, scalar: bool) -> Any:
    if np.dtype(dtype).kind not in NUMBERS:
        raise ValueError(f"arrays of {dtype} are not sent")
    array = np.frombuffer(base64.b64decode(content), np.dtype(dtype)).reshape(shape).copy()
    return array[()] if scalar else array
