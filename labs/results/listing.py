"""What `labs results` shows: the runs of the results folder as a table, and all that is known of them as CSV."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labs.results import records
from labs.results.tables import known, named, text
from labs.run import catalogue
from labs.run.errors import LabError
from labs.run.paths import shown
from labs.run.text import printable

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("lab", "run", "size", "nodes", "batch_size", "images_per_sec", "seconds_per_epoch", "val_accuracy",
           "test_accuracy")
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""How a cell begins that a spreadsheet would compute."""


def load(lab: str | None, root: Path) -> pd.DataFrame:
    """Return the runs of a results folder, oldest first, one row each.

    Args:
        lab: Name of a lab, or the beginning of it; all labs, if left out.
        root: The results folder.

    Raises:
        LabError: No lab is called so, or there are no runs of it, or none at all.
    """
    name = _lab(lab, root) if lab is not None else "*"
    found = records.read_all(name, root)
    if not found:
        raise LabError(_none(name, root))
    frame = records.table(found)
    validated = [record["history"][-1].get("val_accuracy") if record["history"] else None for record in found]
    if "val_accuracy" not in frame and any(map(known, validated)):
        frame["val_accuracy"] = validated
    return frame


def _lab(asked: str, root: Path) -> str:
    """Return a lab's full name; results may also hold runs of labs that this clone does not have."""
    there = os.listdir(root) if root.is_dir() else []
    return asked if asked in there else catalogue.resolve(asked)


def _none(name: str, root: Path) -> str:
    """Return why there is nothing to show."""
    unreadable = len(list(root.glob(f"{name}/*/record.json")))
    if unreadable:
        return f"none of the records in {shown(root / name.removesuffix('*'))} can be read"
    if name != "*" and any(root.glob("*/*/record.json")):
        return f"no runs of {name} yet; `labs run {name}` makes one"
    return "the results store is empty; `labs run lab10_caltech --workers 2` fills it"


def table(frame: pd.DataFrame) -> str:
    """Return the columns that matter most as a table for a terminal."""
    columns = [column for column in COLUMNS if column in frame]
    rows = [[cell(value) for value in row] for row in frame[columns].itertuples(index=False)]
    return text([[named(column) for column in columns], *rows])


def cell(value: Any) -> str:
    """Return a value with four significant digits, whole numbers as such, and nothing where there is none."""
    if not known(value):
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return printable(value)
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < 1e15):
        return str(int(value))
    return f"{value:.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"


def csv(frame: pd.DataFrame) -> str:
    """Return all columns as CSV for a spreadsheet: no text in it is a formula, and counts are whole numbers."""
    texts = {name: frame[name].map(_quoted) for name in frame.select_dtypes(exclude="number")}
    whole = {name: "Int64" for name in frame.select_dtypes("float") if _counts(frame[name])}
    quoted = frame.assign(**texts).astype(whole)
    quoted.columns = [_quoted(name) for name in quoted]
    return quoted.to_csv(index=False)


def _counts(column: pd.Series) -> bool:
    """Whether a column holds whole numbers that pandas made floats because some are missing."""
    there = column.dropna()
    return 0 < len(there) < len(column) and bool((there.abs() < 2**53).all() and (there % 1 == 0).all())


def _quoted(value: Any) -> Any:
    """Return text that a spreadsheet would compute with the apostrophe that makes it text.

    On one line: pandas does not quote a carriage return, and what follows it would begin a row.
    """
    if not isinstance(value, str):
        return value
    return "'" * value.startswith(FORMULA) + printable(value)
