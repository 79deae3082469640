"""The schema of a record: msgspec checks each record before anything is computed from it."""

from __future__ import annotations

import hashlib
import json
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
    student: str = ""
    digest: str = ""


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


def check(record: Any) -> None:
    """Raise unless a record fits the schema.

    Raises:
        LabError: The record does not fit; the message names the field and the problem.
    """
    try:
        msgspec.convert(record, Required)  # First: its messages name the field within a part.
        msgspec.convert(record, Contents)
    except msgspec.ValidationError as problem:
        text, _, path = str(problem).rstrip("`").partition(" - at `$.")
        raise LabError(f"{path}: {text}".removeprefix(": ").replace("[...]", "")) from None


def digest(record: Record) -> str:
    """Return the SHA-256 of a record's content, apart from its digest: anyone can compute it, so it proves nothing."""
    content = {name: value for name, value in record.items() if name != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
