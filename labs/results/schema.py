"""The schema of a record, checked with msgspec before anything is computed from it."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import msgspec

from labs.run.errors import LabError

Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Tables hold 64 bits; beyond them pandas and numpy raise."""
Count = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Figure = bool | Integer | float | None
Plain = Figure | str
Value = Plain | list[Plain | list[Plain] | dict[str, Plain]] | dict[str, Plain | list[Plain] | dict[str, Plain]]
"""What a Config, a layout or a table may hold; the depth is bounded, since Python's own `str` is recursive."""
LabName = Annotated[str, msgspec.Meta(pattern=r"^\w[\w.-]*\Z", max_length=255)]
"""Files of the report are named after labs: no separators."""
RunName = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


class Contents(msgspec.Struct):
    """Every part of a record, with the type of whatever is in it."""

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
    tables: dict[str, list[dict[str, Value]]] = {}


class Layout(msgspec.Struct):
    """The fields of a layout that are computed with."""

    size: Count
    nodes: Count = 1
    global_batch_size: Integer = 0


class Timings(msgspec.Struct):
    """The timings that every run has, be they unknown."""

    images_per_sec: Integer | float | None
    seconds_per_epoch: Integer | float | None


class Machine(msgspec.Struct):
    """The fields of a machine that are read."""

    host: str = ""
    cores: Integer | None = None
    memory_bytes: Integer | float | None = None
    onednn: bool | None = None
    gpus: list[str] | None = None


class Epoch(msgspec.Struct):
    """The field that every row of a history has."""

    epoch: Integer


class Known(msgspec.Struct):
    """The fields that must have a type of their own; others may stand beside them."""

    layout: Layout
    timings: Timings
    machine: Machine
    history: list[Epoch]


IDENTITY = frozenset({"lab", "run", "started"})
"""Columns that identify a run in every table: nothing else in a record may have these names."""
RESERVED = IDENTITY | {"size"}
"""Of a Config, besides: how many workers ran is the layout's to say."""
MEASURED = IDENTITY | set(Layout.__struct_fields__)
"""Of what was measured: where it ran is the layout's to say, too."""


def check(record: Any) -> None:
    """Check a record.

    Args:
        record: As JSON gave it.

    Raises:
        LabError: Names the field and what is wrong with it.
    """
    try:
        msgspec.convert(record, Contents)
        msgspec.convert(record, Known)
    except msgspec.ValidationError as problem:
        raise LabError(_message(str(problem), record)) from None
    for part, names, reserved in _names(record):
        if not reserved.isdisjoint(names):
            raise LabError(f"{part}.{min(reserved.intersection(names))}: this name is reserved for the run itself")


def _names(record: dict) -> Iterator[tuple[str, Iterable[str], frozenset[str]]]:
    """Yield the parts of a record that become columns, their names, and the names that they must not have."""
    yield "layout", record["layout"], IDENTITY
    yield "config", record["config"], RESERVED
    for part in ("timings", "metrics"):
        yield part, record[part], MEASURED
    for name, rows in record.get("tables", {}).items():
        for row in rows:
            yield f"tables.{name}", row, IDENTITY


def _message(problem: str, record: dict) -> str:
    """Return msgspec's message with the field first; it writes a dictionary's key as [...]."""
    text, _, path = problem.rstrip("`").partition(" - at `$.")
    if found := re.match(r"(\w+)\[\.\.\.\]", path):
        path = path.replace("[...]", "." + _key(record[found[1]], found[1]), 1)
    return f"{path}: {text}".removeprefix(": ").replace("[...]", "")


def _key(values: dict[str, Any], part: str) -> str:
    """Return the first key whose value does not fit the type of its part."""
    kind = typing.get_type_hints(Contents, include_extras=True)[part]
    for key, value in values.items():
        try:
            msgspec.convert({key: value}, kind)
        except msgspec.ValidationError:
            return key
    return "..."
