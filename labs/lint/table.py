"""A results table as the rules of lint read it: rows by canonical columns, and the families that may be compared."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

Row = dict[str, Any]


WORDS = {"model", "experiment", "collective"}
"""Columns that hold words; what is no figure in another one, is nothing."""


ROUNDED = 0.02
"""How far a figure may be from what it is computed from: typed tables are rounded."""


@dataclasses.dataclass(frozen=True)
class Table:
    """What the rules look at: rows by canonical columns; `row` is the line in a file, `where` the file or the run."""

    rows: list[Row]
    columns: frozenset[str]
    config: tuple[str, ...]
    """The columns that name a row's configuration."""
    reading: str = ""
    """What was read as what, if it is a typed table."""

    def having(self, *columns: str) -> list[Row]:
        """Return the rows that hold a figure (a word, in a column of words) in all these columns."""
        if not self.columns.issuperset(columns):
            return []
        found = self.rows
        for column in columns:
            kinds = (str, int, float) if column in WORDS else (int, float)
            found = [row for row in found if isinstance(row.get(column), kinds) and known(row[column])]
        return found


def known(cell: Any) -> bool:
    """Whether a cell holds something."""
    return cell is not None and cell == cell and cell != ""


def value(row: Row, *columns: str) -> float:
    """Return the product of some values of a row; NaN if one is missing."""
    product = 1.0
    for column in columns:
        cell = row.get(column)
        if not isinstance(cell, int | float):
            return math.nan
        product *= cell
    return product


def divide(a: float, b: float) -> float:
    """Return a / b; NaN where that is no number."""
    ratio = a / b if b else math.nan
    return ratio if math.isfinite(ratio) else math.nan


def near(a: float, b: float, tolerance: float = ROUNDED) -> bool:
    """Whether two figures are one, but for rounding."""
    return abs(a - b) <= tolerance * abs(b)


def number(figure: float) -> str:
    """Write a number as short as it can be understood."""
    if not math.isfinite(figure):
        return "?"
    return f"{figure:,.0f}" if figure == int(figure) or abs(figure) >= 1000 else f"{figure:.4g}"


def size(row: Row) -> float:
    """Return the number of workers of a row: its own word, or nodes x processes."""
    told = value(row, "size")
    if math.isnan(told):
        return value(row, "nodes") * (value(row, "processes_per_node") if "processes_per_node" in row else 1.0)
    return told


def base_size(row: Row) -> float:
    """Return the number of workers to compare with: one, or the processes of one node where a node has several."""
    per_node = value(row, "processes_per_node")
    return per_node if per_node > 1 and math.isnan(value(row, "size")) else 1.0


def ideal_speedup(row: Row) -> float:
    """Return how many times as fast a row could be at best: its workers by those of the base."""
    return size(row) / base_size(row) if size(row) > 0 else math.nan


def workers_text(row: Row) -> str:
    """Say how many workers a row had."""
    count = size(row)
    return f"{number(count)} worker{'s' * (count != 1)}" if count > 0 else "an unknown number of workers"


def global_batch(row: Row) -> float:
    """Return the images of one step."""
    told = value(row, "global_batch_size")
    return told if told > 0 else value(row, "batch_size") * size(row)


def batch(row: Row) -> float:
    """Return the images of one worker's step."""
    told = value(row, "batch_size")
    return told if told > 0 else divide(value(row, "global_batch_size"), size(row))


def key(row: Row, columns: Iterable[str]) -> tuple:
    """Return some values of a row so that they can be compared: a NaN equals a NaN."""
    values = (row.get(column) for column in columns)
    return tuple(str(value) if known(value) else None for value in values)


TIMES = ("epoch_seconds", "train_seconds", "total_seconds", "step_seconds")


def timed_columns(table: Table) -> list[str]:
    """Return the columns from which speedups may have been computed, the best first."""
    return [name for name in ("images_per_sec", *TIMES)
            if sum(throughput(row, name) > 0 for row in table.having(name)) > 1]


def timed_column(table: Table) -> str:
    """Return the column from which this table's speedups follow; "" if it has none."""
    return next(iter(timed_columns(table)), "")


def throughput(row: Row, by: str) -> float:
    """Return a row's rate by its column `by`: the column itself, or one by its seconds."""
    told = value(row, by) if by else math.nan
    if not told > 0:
        return math.nan
    if by.startswith("unread_"):  # A column that no rule knows, from which a speedup may have been computed.
        return divide(1, told) if by.startswith("unread_time_") else told
    if by == "step_seconds":  # A step's time alone is no rate: with more workers it may hold more images.
        return divide(global_batch(row), told)
    return told if by == "images_per_sec" else divide(1, told)


def rounding_share(row: Row, by: str) -> float:
    """Return how far a figure may be from what was measured, as a share of it: it was typed with so few digits."""
    share = divide(row.get("rounding", {}).get(by, 0.0), value(row, by))
    return min(share, 0.25) if share > 0 else 0.0


Family = dict[tuple[float, float], list[Row]]
"""Rows of one configuration by (workers, nodes); the smallest are the base."""


def families(table: Table, by: str = "") -> Iterator[tuple[str, Family]]:
    """Yield the families of rows that may be compared, and the column of their rate.

    Rows whose batch per worker is that of a one-worker row are a weak scaling; else those with its global batch a
    strong one. Where a configuration has no one-worker row, its smallest number of workers is the base.

    Args:
        by: The column of the rates; by default the best that the table has.
    """
    by, batches = by or timed_column(table), ("batch_size", "global_batch_size", "processes_per_node")
    several = len({row.get("epoch") for row in table.rows}) > 1  # The first epoch traces the network and fills caches.
    found = [row for row in table.rows if size(row) > 0 and throughput(row, by) > 0
             and not (several and value(row, "epoch") <= 1)]
    others = [name for name in table.config if name not in batches]
    names = [key(row, others) for row in found]
    alone = {name for name, row in zip(names, found, strict=True) if size(row) == base_size(row)}
    served: set[int] = set()
    for based, held in ((True, batch), (True, global_batch), (False, batch), (False, global_batch)):
        groups: dict[tuple, Family] = defaultdict(lambda: defaultdict(list))
        for place, row in enumerate(found):
            if (place not in served or (based and size(row) == base_size(row))) and (names[place] in alone) == based:
                images = held(row)
                group = (names[place], images if images > 0 else None)
                groups[group][size(row), max(0.0, value(row, "nodes"))].append(row | {"place": place})
        for family in groups.values():
            base = min(family)
            if len(family) > 1 and (not based or base[0] == base_size(family[base][0])):
                served |= {row["place"] for members in family.values() for row in members}
                yield by, family


QUALITY = ("test_accuracy", "train_accuracy", "test_loss", "train_loss")
