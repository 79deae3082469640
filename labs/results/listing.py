"""`labs results`: the runs of a results folder as a table, or with all columns as CSV."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from labs.results import records, reference
from labs.results.tables import heading, known
from labs.run import catalogue
from labs.run.errors import LabError
from labs.run.paths import format_path

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("lab", "run", "size", "nodes", "batch_size", "global_batch_size", "images_per_sec", "seconds_per_epoch",
           "val_accuracy", "test_accuracy")


def load(lab: str | None, root: Path, set_name: str | None = None) -> pd.DataFrame:
    """Return the runs of a results folder, oldest first, one row each: of all labs, or of one named lab.

    Args:
        lab: Name of the lab; None for all.
        root: The results folder, which may hold runs of labs that this clone does not have.
        set_name: Name of a set of reference runs, to return these instead.

    Raises:
        LabError: No lab or set has that name, or there are no runs of it, or no runs at all.
    """
    recorded = os.listdir(root) if root.is_dir() else []
    name = "*" if lab is None else lab if lab in recorded else catalogue.resolve(lab)
    runs = reference.read_all(set_name, name) if set_name else records.read_all(name, root)
    if not runs:
        raise LabError(f"no runs{f' of {name}' if lab else ''} in {set_name or format_path(root)}; "
                       f"`labs run {name if lab else 'lab10'} --workers 2` makes one")
    frame = records.table(runs)
    validated = [record["history"][-1].get("val_accuracy") if record["history"] else None for record in runs]
    if "val_accuracy" not in frame and any(map(known, validated)):
        frame["val_accuracy"] = validated
    return frame


def table(frame: pd.DataFrame) -> str:
    """Return the most important columns as a table for a terminal, with four significant digits."""
    columns = {column: heading(column) for column in COLUMNS if column in frame}
    texts = frame[list(columns)].rename(columns=columns)
    return texts.to_string(index=False, na_rep="", float_format=_four_digits)


def _four_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def csv(frame: pd.DataFrame) -> str:
    """Return all columns as CSV, a line each run, with counts as whole numbers although some are missing."""
    return frame.convert_dtypes().to_csv(index=False)
