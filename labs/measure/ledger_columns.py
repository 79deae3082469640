"""The names of a time ledger's columns in records: `ledger_compute_seconds` and so on. Imports no TensorFlow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

PREFIX, SUFFIX = "ledger_", "_seconds"
ENTRIES = ("input", "compute", "communication", "start", "other")
"""What an epoch's wall time consists of; the entries sum to it."""


def column(entry: str) -> str:
    """Return the column of an entry, or of "wall": "ledger_input_seconds"."""
    return f"{PREFIX}{entry}{SUFFIX}"


WALL = column("wall")
COLUMNS = tuple(map(column, (*ENTRIES, "wall")))


def is_column(name: str) -> bool:
    """Return whether a column of a record belongs to the ledger."""
    return name.startswith(PREFIX) and name.endswith(SUFFIX)


def entry(name: str) -> str:
    """Return what a column of the ledger is about: "input" for "ledger_input_seconds"."""
    return name.removeprefix(PREFIX).removesuffix(SUFFIX)


def entries(names: Iterable[str]) -> list[str]:
    """Return the ledger's columns among some names, without the wall time."""
    return [name for name in names if is_column(name) and name != WALL]


def read(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the ledger in a record's metrics by entry, "wall" included; empty if it was not measured."""
    return {entry(name): value for name, value in metrics.items() if is_column(name)}


def by_round(rounds: Sequence[Mapping[str, float]], steps: int) -> list[dict[str, float]]:
    """Return the seconds per epoch of each measured entry, all but `other`, in each round.

    Args:
        rounds: From `ledger.measure`, as in a record's table "ledger".
    """
    return [{"input": steps * (row["from_pipeline"] - row["exchanged"]),
             "compute": steps * row["alone"],
             "communication": steps * (row["exchanged"] - row["alone"]),
             "start": row["one_step_epoch"] - row["from_pipeline"]} for row in rounds]
