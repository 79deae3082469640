"""`labs results`: the runs of a results folder as a table, or with all columns as CSV."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labs.results import records, reference
from labs.results.tables import known, named
from labs.run import catalogue, terminal
from labs.run.errors import LabError
from labs.run.paths import format_path
from labs.run.text import printable

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("lab", "run", "size", "nodes", "batch_size", "global_batch_size", "images_per_sec", "seconds_per_epoch",
           "val_accuracy", "test_accuracy")


def load(lab: str | None, root: Path, kept: str | None = None) -> pd.DataFrame:
    """Return the runs of a results folder, oldest first, one row each: of all labs, or of one named lab.

    Args:
        lab: Name of the lab; None for all.
        root: The results folder.
        kept: Name of a set of reference runs, to return these instead.

    Raises:
        LabError: No lab or set has that name, or there are no runs of it, or no runs at all.
    """
    name = _lab(lab, root) if lab is not None else "*"
    runs = records.read_all(name, root) if kept is None else reference.read_all(kept, name)
    if not runs:
        raise LabError(_why_empty(name, root) if kept is None else f"{kept} has no runs of {name}")
    frame = records.table(runs)
    validated = [record["history"][-1].get("val_accuracy") if record["history"] else None for record in runs]
    if "val_accuracy" not in frame and any(map(known, validated)):
        frame["val_accuracy"] = validated
    return frame


def _lab(name: str, root: Path) -> str:
    """Return a lab's full name; a results folder may hold runs of labs that this clone does not have."""
    recorded = os.listdir(root) if root.is_dir() else []
    return name if name in recorded else catalogue.resolve(name)


def _why_empty(name: str, root: Path) -> str:
    """Return why there are no runs to show."""
    unreadable = len(list(root.glob(f"{name}/*/record.json")))
    if unreadable:
        return f"none of the records in {format_path(root / name.removesuffix('*'))} can be read"
    if name != "*" and any(root.glob("*/*/record.json")):
        return f"no runs of {name} yet; `labs run {name}` makes one"
    return "the results folder is empty; `labs run lab10_caltech --workers 2` fills it"


def table(frame: pd.DataFrame) -> str:
    """Return the most important columns as a table for a terminal."""
    columns = [column for column in COLUMNS if column in frame]
    rows = [[cell(value) for value in row] for row in frame[columns].itertuples(index=False)]
    return terminal.table([[named(column) for column in columns], *rows])


def cell(value: Any) -> str:
    """Return a value with four significant digits, a whole number in full, and "" for a missing one."""
    if not known(value):
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return printable(value)
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < 1e15):
        return str(int(value))
    return f"{value:.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"


def csv(frame: pd.DataFrame) -> str:
    """Return all columns as CSV, a line each run, with counts as whole numbers."""
    texts = {name: frame[name].map(lambda value: printable(value) if isinstance(value, str) else value)
             for name in frame.select_dtypes(exclude="number")}
    whole = {name: "Int64" for name in frame.select_dtypes("float") if _counts(frame[name])}
    return frame.assign(**texts).astype(whole).rename(columns=printable).to_csv(index=False)


def _counts(column: pd.Series) -> bool:
    """Return whether a column holds whole numbers that pandas made floats because some are missing."""
    present = column.dropna()
    return 0 < len(present) < len(column) and bool((present.abs() < 2**53).all() and (present % 1 == 0).all())
