"""Tables, for a terminal and for a page."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from labs.measure import ledger_columns
from labs.run.text import printable

if TYPE_CHECKING:
    import pandas as pd


def closing(record: dict[str, Any]) -> str:
    """Return the table that ends a run: workers, rate, seconds per epoch, accuracies."""
    history = record["history"]
    last = history[-1] if history else {}
    row = {
        "workers": record["layout"]["size"],
        "global batch": record["layout"]["global_batch_size"],
        "images/s": record["timings"]["images_per_sec"],
        "s/epoch": record["timings"]["seconds_per_epoch"],
    } if history else {"workers": record["layout"]["size"], "seconds": record["timings"]["total_seconds"]}
    row |= {name.replace("val_", "validation "): last[name] for name in last
            if name in ("val_accuracy", "val_mae", "val_loss")}
    row |= {name.replace("_", " "): value for name, value in record["metrics"].items()
            if isinstance(value, float) and not ledger_columns.is_column(name)}
    lines = text([list(row), [_number(value) for value in row.values()]])
    return "\n".join(filter(None, [lines, _ledger(record["metrics"])]))


def _ledger(metrics: dict[str, float]) -> str:
    """Return the ledger of an epoch in one line; "" if it was not measured."""
    entries = ledger_columns.read(metrics)
    if not entries:
        return ""
    wall = entries.pop("wall")
    return f"\nan epoch of {wall:.2f} s: " + ", ".join(f"{name} {value:.2f} s" for name, value in entries.items())


def messages(rows: Sequence[dict[str, Any]]) -> str:
    """Return what Horovod's timeline says of a run: exchanges, messages, bytes and seconds of each kind."""
    head = ["exchanged", "times", "messages", "bytes", "share", "negotiating ms", "waiting ms", "transfers s"]
    lines = [
        [row["kind"], str(row["exchanges"]), str(row["messages"]), "?" if row["bytes"] is None else f"{row['bytes']:,}",
         f"{row['share']:.2%}", f"{1e3 * row['negotiating_seconds']:.2f}", f"{1e3 * row['waiting_seconds']:.2f}",
         f"{row['transfer_seconds']:.3f}"] for row in rows
    ]
    return text([head, *lines])


def _number(value: Any) -> str:
    if value is None:
        return "one epoch only"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.4f}"


def text(rows: Sequence[Sequence[str]]) -> str:
    """Return rows, the first being the heading, as lines with columns set to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


@dataclasses.dataclass(frozen=True)
class Grid:
    """A table for a page."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def markdown(self) -> str:
        """Return it as Markdown."""
        rows = [[markdown(cell) for cell in row] for row in (self.head, *self.rows)]
        rows.insert(1, ["---"] * len(self.head))
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def markdown(text: str, code: bool = False) -> str:
    """Return text on one line as Markdown that shows it as it is: names in a record may hold markup.

    Args:
        text: Any.
        code: Keep backticks: the text has commands in them.
    """
    text = re.sub(r"[\\*~|]" if code else r"[\\*~|`]", r"\\\g<0>", printable(text))
    text = re.sub(r"(?<![^\W_])_+|_+(?![^\W_])|\](?=[(\[:])|^[-+#=]+(?=\s|$)", _escaped, text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _escaped(found: re.Match) -> str:
    return "".join(f"\\{character}" for character in found[0])


MOST = 40
"""Rows that a page shows of one table."""


def grid(title: str, frame: pd.DataFrame, columns: Sequence[str], note: str = "") -> Grid:
    """Return some columns of a frame as a table; `x` with `x_low` and `x_high` beside it becomes "x [low, high]"."""
    columns = [column for column in columns if column in frame]
    rows = [[cell(row, column) for column in columns] for row in frame.head(MOST).to_dict("records")]
    if len(frame) > MOST:
        note = f"{note} The first {MOST} of {len(frame)} rows.".strip()
    return Grid(title, [named(column) for column in columns], rows, note)


def cell(row: dict[str, Any], column: str) -> str:
    """Return a value of a row with its interval, where it has one."""
    ends = [row.get(f"{column}_{end}") for end in ("low", "high")]
    shown = figure(row[column])
    return f"{shown} [{figure(ends[0])}, {figure(ends[1])}]" if shown and all(known(end) for end in ends) else shown


def known(value: Any) -> bool:
    """Whether there is a value."""
    return value is not None and value == value


def figure(value: Any) -> str:
    """Return a value with three digits, as far as it has them."""
    if not known(value):
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def named(column: str) -> str:
    """Return a column's name as a reader expects it."""
    short = {"images_per_sec": "images/s", "seconds_per_epoch": "s/epoch", "size": "workers", "batch_size": "batch",
             "first_epoch_seconds": "first epoch, s", "global_batch_size": "global batch",
             "scaling_efficiency": "efficiency", "val_accuracy": "validation accuracy"}
    return short.get(column, column.replace("_", " "))
