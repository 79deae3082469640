"""Tables as text for a terminal and as Markdown for a page; the table of runs that `labs results` shows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from labs.results import records, reference
from labs.run import catalogue, terminal
from labs.run.errors import LabError, plural, printable
from labs.run.paths import format_path

if TYPE_CHECKING:
    import pandas as pd

LEAST = 3
"""Fewest repeats for which an interval is printed: that of two is the mean ± 13 standard errors."""
FEW = f"none with fewer than {LEAST} repeats"
MAX_ROWS = 40
"""The most rows of one table that a page shows."""
HEADINGS = {"images_per_sec": "images/s", "seconds_per_epoch": "s/epoch", "size": "workers", "batch_size": "batch",
            "first_epoch_seconds": "first epoch, s", "global_batch_size": "global batch",
            "scaling_efficiency": "efficiency", "val_accuracy": "validation accuracy"}


class Grid(NamedTuple):
    """A table for a page: title, column names, cells as text, and a note below."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def text(self) -> str:
        """Return it as text for a terminal, below its title."""
        return "\n".join([self.title, terminal.table([self.head, *self.rows])])

    def markdown(self) -> str:
        """Return it as Markdown."""
        rows = [[markdown(cell) for cell in row] for row in (self.head, *self.rows)]
        rows.insert(1, ["---"] * len(self.head))
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def markdown(text: str) -> str:
    """Return text as one line of Markdown that shows it literally; names in a record may contain markup."""
    text = re.sub(r"[\\*~|`]", r"\\\g<0>", printable(text))
    text = re.sub(r"(?<![^\W_])_+|_+(?![^\W_])|\](?=[(\[:])|^[-+#=]+(?=\s|$)",
                  lambda match: re.sub(".", r"\\\g<0>", match[0]), text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def grid(title: str, frame: pd.DataFrame, columns: Sequence[str], note: str = "") -> Grid:
    """Return some columns of a frame as a table; `x` with `x_low` and `x_high` beside it becomes "x [low, high]"."""
    columns = [column for column in columns if column in frame and (column != "note" or frame[column].any())]
    rows = [[_cell(row, column) for column in columns] for row in frame.head(MAX_ROWS).to_dict("records")]
    if len(frame) > MAX_ROWS:
        note = f"{note} The first {MAX_ROWS} of {len(frame)} rows.".strip()
    return Grid(title, [heading(column) for column in columns], rows, note)


def _cell(row: dict[str, Any], column: str) -> str:
    """Return a value of a row, with its interval if it has one from enough repeats (seeds)."""
    low, high = (figure(row.get(f"{column}_{end}")) for end in ("low", "high"))
    text = figure(row[column])
    enough = row.get("repeats", row.get("seeds", LEAST)) >= LEAST
    return f"{text} [{low}, {high}]" if text and low and high and enough else text


def figure(value: Any) -> str:
    """Return a value with at most three significant digits; whole numbers in full; nothing for None and NaN."""
    if value is None or value != value:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def heading(column: str) -> str:
    """Return the heading of a column: "images/s" for `images_per_sec`."""
    return HEADINGS.get(column, column.replace("_", " "))


def intervals(frame: pd.DataFrame, name: str, digits: int) -> pd.Series:
    """Return a column with its interval as text: "1.52 (1.48 to 1.56)"; the value alone where it has no interval."""
    middle, low, high = (frame[column].map(f"{{:.{digits}f}}".format)
                         for column in (name, f"{name}_low", f"{name}_high"))
    return middle.where(frame[f"{name}_low"].isna(), middle + " (" + low + " to " + high + ")")


def join(values: Iterable[float], digits: int = 2) -> str:
    """Return numbers as text, separated by commas: "1.67, 1.68"."""
    return ", ".join(f"{value:.{digits}f}" for value in values)


def format_layout(hosts: Sequence[str], machines: int) -> str:
    """Return the layout of all ranks' nodes: "2 x 3" for nodes x workers, "3 + 1", or "4 x 1, 1 machine"."""
    counts = list(Counter(hosts).values())
    shared = f", {plural(machines, 'machine')}" if machines != len(counts) else ""
    return (f"{len(counts)} x {counts[0]}" if len(set(counts)) == 1 else " + ".join(map(str, counts))) + shared


LISTED = ("lab", "run", "size", "nodes", "batch_size", "global_batch_size", "images_per_sec", "seconds_per_epoch",
          "val_accuracy", "test_accuracy")


def load(lab: str | None, root: Path, set_name: str | None = None) -> pd.DataFrame:
    """Return the runs of a results folder or a set of reference runs, oldest first: all, or those of one lab."""
    name = "*" if lab is None else lab if (root / lab).is_dir() else catalogue.resolve(lab)
    runs = reference.read_all(set_name, name) if set_name else records.read_all(name, root)
    if not runs:
        raise LabError(f"no runs{f' of {name}' if lab else ''} in {set_name or format_path(root)}; "
                       f"`labs run {name if lab else 'lab10'} --workers 2` makes one")
    frame = records.table(runs)
    validated = [run["history"][-1].get("val_accuracy") if run["history"] else None for run in runs]
    return frame if "val_accuracy" in frame or not any(validated) else frame.assign(val_accuracy=validated)


def listing(frame: pd.DataFrame) -> str:
    """Return the most important columns as a table for a terminal, with four significant digits."""
    texts = frame[[name for name in LISTED if name in frame]].rename(columns=heading)
    return texts.to_string(index=False, na_rep="", float_format=lambda value: f"{value:.4g}" if value < 1000 else
                           f"{value:.0f}")
