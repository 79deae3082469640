"""The schema of a record: msgspec checks each record before anything is computed from it."""

from __future__ import annotations

import itertools
import re
import typing
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import msgspec

from labs.run.errors import LabError

Record = dict[str, Any]
"""The record of a finished run, as JSON values, from `run_record.finish`."""
FORMAT = 1
"""The format of the records that this kit writes and reads."""
Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Integers of at most 64 bits: pandas and numpy raise on larger ones."""
Count = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Figure = bool | Integer | float | None
Plain = Figure | str
Value = Plain | list[Plain | list[Plain] | dict[str, Plain]] | dict[str, Plain | list[Plain] | dict[str, Plain]]
"""A value in a Config, a layout or a table. Its depth is bounded, because Python's `str` is recursive."""
LabName = Annotated[str, msgspec.Meta(pattern=r"^\w[\w.-]*\Z", max_length=255)]
"""No separators, because files of the report are named after labs."""
RunName = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


class Contents(msgspec.Struct):
    """All fields of a record, with the types of their contents."""

    lab: LabName
    run: RunName
    started: str
    config: dict[str, Value]
    layout: dict[str, Value]
    history: list[dict[str, Figure]]
    timings: dict[str, Integer | float | None]
    metrics: dict[str, Value]
    machine: dict[str, Value]
    versions: dict[str, str] | None = None
    data: dict[str, dict[str, Plain]] = {}
    tables: dict[str, list[dict[str, Value]]] = {}


class Layout(msgspec.Struct):
    """The fields of a layout that are used in computations."""

    size: Count
    nodes: Count
    global_batch_size: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Timings(msgspec.Struct):
    """The timings that every record has; they may be null."""

    images_per_sec: Integer | float | None
    seconds_per_epoch: Integer | float | None


class Machine(msgspec.Struct):
    """The fields of a machine that are used."""

    host: str = ""
    link: str = ""
    cores: Integer | None = None
    memory_bytes: Integer | float | None = None
    onednn: bool | None = None
    variables: dict[str, str] | None = None
    gpus: list[str] | None = None


class Epoch(msgspec.Struct):
    """The field that every row of a history has."""

    epoch: Integer


class Measured(msgspec.Struct):
    """The columns of a table that are plotted: they hold numbers in every table that has them."""

    bytes: Integer | float | None = None
    seconds: Integer | float | None = None
    seconds_low: Integer | float | None = None
    seconds_high: Integer | float | None = None
    algbw: Integer | float | None = None
    busbw: Integer | float | None = None


class Required(msgspec.Struct):
    """The fields with a fixed type; other fields are allowed beside them."""

    layout: Layout
    timings: Timings
    machine: Machine
    history: list[Epoch]
    tables: dict[str, list[Measured]] = {}


IDENTITY = frozenset({"lab", "run", "started"})
"""Columns that identify a run in every table; nothing else in a record may have these names."""
RESERVED = IDENTITY | {"size"}
"""Names that no field of a Config may have: the number of workers belongs to the layout."""
MEASURED = IDENTITY | set(Layout.__struct_fields__)
"""Names that no timing and no metric may have: where a run ran belongs to the layout."""


def check(record: Any) -> None:
    """Raise unless a record fits the schema.

    Args:
        record: The parsed JSON.

    Raises:
        LabError: Names the field and the problem.
    """
    try:
        msgspec.convert(record, Contents)
        msgspec.convert(record, Required)
    except msgspec.ValidationError as problem:
        raise LabError(_message(str(problem), record)) from None
    for field, names, reserved in _names(record):
        if not reserved.isdisjoint(names):
            raise LabError(f"{field}.{min(reserved.intersection(names))}: this name is reserved for the run itself")


def _names(record: dict) -> Iterator[tuple[str, Iterable[str], frozenset[str]]]:
    """Yield the fields of a record that become columns, the columns' names, and the names that are reserved."""
    yield "layout", record["layout"], IDENTITY
    yield "config", record["config"], RESERVED
    for field in ("timings", "metrics"):
        yield field, record[field], MEASURED
    for name, rows in record.get("tables", {}).items():
        for row in rows:
            yield f"tables.{name}", row, IDENTITY


def _message(problem: str, record: dict) -> str:
    """Return msgspec's message with the field first, and with keys instead of its [...]."""
    text, _, path = problem.rstrip("`").partition(" - at `$.")
    if match := re.match(r"(\w+)\[\.\.\.\]", path):
        path = path.replace("[...]", "." + _key(record[match[1]], match[1]), 1)
    return f"{path}: {text}".removeprefix(": ").replace("[...]", "")


def _key(values: dict[str, Any], field: str) -> str:
    """Return the first key whose value does not fit a type of its field."""
    hints = [typing.get_type_hints(part, include_extras=True) for part in (Contents, Required)]
    for kind, (key, value) in itertools.product([hint[field] for hint in hints if field in hint], values.items()):
        try:
            msgspec.convert({key: value}, kind)
        except msgspec.ValidationError:
            return key
    return "..."
