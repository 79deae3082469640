"""What the rules of lint read and return: a results table, its families that may be compared, and findings."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

Row = dict[str, Any]

TEXT = {"model", "experiment"}

ROUNDED = 0.02
"""How far a figure may be from what it is computed from: typed tables are rounded."""

TIMES = ("epoch_seconds", "train_seconds", "total_seconds", "step_seconds")
QUALITY = ("test_accuracy", "train_accuracy", "test_loss", "train_loss")


@dataclasses.dataclass(frozen=True)
class Table:
    """What the rules check."""

    rows: list[Row]
    """By the rules' columns; also `row`, the line in the file, and `where`, the file or the run."""
    columns: frozenset[str]
    config: tuple[str, ...]
    """The columns that tell configurations apart."""
    reading: str = ""
    """How each column was read, if it is a typed table."""

    def having(self, *columns: str) -> list[Row]:
        """Return the rows that hold a finite number (a text, in a column of texts) in all these columns."""
        if not self.columns.issuperset(columns):
            return []
        kinds = {column: (str, int, float) if column in TEXT else (int, float) for column in columns}
        return [row for row in self.rows
                if all(isinstance(row.get(column), kinds[column]) and known(row[column])
                       and row[column] not in (math.inf, -math.inf) for column in columns)]


def known(cell: Any) -> bool:
    """Return whether a cell has a value."""
    return cell is not None and cell == cell and cell != ""


def value(row: Row, column: str) -> float:
    """Return a number of a row; NaN if it is missing."""
    cell = row.get(column)
    return cell if isinstance(cell, int | float) else math.nan


def first_positive(*figures: float) -> float:
    """Return the first figure above 0; NaN if there is none."""
    return next((figure for figure in figures if figure > 0), math.nan)


def divide(a: float, b: float) -> float:
    """Return a / b; NaN if that is not a finite number."""
    ratio = a / b if b else math.nan
    return ratio if math.isfinite(ratio) else math.nan


def near(a: float, b: float, tolerance: float = ROUNDED) -> bool:
    """Return whether two figures agree except for rounding."""
    return abs(a - b) <= tolerance * abs(b)


def number(figure: float) -> str:
    """Write a number with few digits."""
    if not math.isfinite(figure):
        return "?"
    return f"{figure:,.0f}" if figure == int(figure) or abs(figure) >= 1000 else f"{figure:.4g}"


def size(row: Row) -> float:
    """Return the number of workers of a row: as stated, or nodes x processes."""
    stated = value(row, "size")
    if math.isnan(stated):
        return value(row, "nodes") * (value(row, "processes_per_node") if "processes_per_node" in row else 1.0)
    return stated


def base_size(row: Row) -> float:
    """Return the number of workers to compare with: one, or the processes of one node where a node has several."""
    per_node = value(row, "processes_per_node")
    return per_node if per_node > 1 and math.isnan(value(row, "size")) else 1.0


def ideal_speedup(row: Row) -> float:
    """Return the speedup at efficiency 1: workers / workers of the base."""
    return size(row) / base_size(row) if size(row) > 0 else math.nan


def workers_text(row: Row) -> str:
    """Say how many workers a row had."""
    count = size(row)
    return f"{number(count)} worker{'s' * (count != 1)}" if count > 0 else "an unknown number of workers"


def global_batch(row: Row) -> float:
    """Return the images of one step of all workers."""
    return first_positive(value(row, "global_batch_size"), value(row, "batch_size") * size(row))


def batch(row: Row) -> float:
    """Return the images of one step of one worker."""
    return first_positive(value(row, "batch_size"), divide(value(row, "global_batch_size"), size(row)))


def key(row: Row, columns: Iterable[str]) -> tuple:
    """Return some values of a row for comparison: a NaN equals a NaN."""
    values = (row.get(column) for column in columns)
    return tuple(str(value) if known(value) else None for value in values)


def grouped(rows: Iterable[Row], by: Callable[[Row], Hashable]) -> list[list[Row]]:
    """Return the rows in groups, in the order of the groups' first rows."""
    groups = defaultdict(list)
    for row in rows:
        groups[by(row)].append(row)
    return list(groups.values())


def configurations(table: Table, rows: Iterable[Row], without: Iterable[str] = (), *also: str) -> list[list[Row]]:
    """Return rows in groups of one configuration.

    Args:
        table: Their table.
        rows: Some of its rows.
        without: Columns that may differ within a group.
        also: Further columns that must not differ.
    """
    columns = [*also, *(column for column in table.config if column not in without)]
    return grouped(rows, lambda row: key(row, columns))


def timed_columns(table: Table) -> list[str]:
    """Return the columns from which speedups may have been computed, the best first."""
    return [name for name in ("images_per_sec", *TIMES)
            if sum(throughput(row, name) > 0 for row in table.having(name)) > 1]


def timed_column(table: Table) -> str:
    """Return the column from which this table's speedups follow; "" if it has none."""
    return next(iter(timed_columns(table)), "")


def throughput(row: Row, by: str) -> float:
    """Return a row's throughput, in any unit, computed from the column `by`."""
    figure = first_positive(value(row, by))
    if by.startswith("unread_"):  # A column that no rule knows, from which a speedup may have been computed.
        return divide(1, figure) if by.startswith("unread_time_") else figure
    if by == "step_seconds":  # With more workers, a step has more images.
        return divide(global_batch(row), figure)
    return figure if by == "images_per_sec" else divide(1, figure)


def median_throughput(rows: list[Row], by: str) -> float:
    """Return the median throughput of repeats."""
    return statistics.median(throughput(row, by) for row in rows)


def rounding_share(row: Row, by: str) -> float:
    """Return how far a typed figure may be from the measured one, as a share of it: half a unit of its last digit."""
    share = divide(row.get("rounding", {}).get(by, 0.0), value(row, by))
    return min(share, 0.25) if share > 0 else 0.0


Family = dict[tuple[float, float], list[Row]]
"""Rows of one configuration by (workers, nodes); the smallest are the base."""


def families(table: Table, by: str = "") -> Iterator[tuple[str, Family]]:
    """Yield the families of rows that may be compared, and the column of their throughput.

    Rows with the batch per worker of a one-worker row are a weak scaling. Other rows with its global batch are a
    strong scaling. Where a configuration has no one-worker row, its smallest number of workers is the base.

    Args:
        table: The table.
        by: The column of the throughput; by default the best that the table has.
    """
    by = by or timed_column(table)
    several = len({row.get("epoch") for row in table.rows}) > 1  # The first epoch traces the network and fills caches.
    rows = [row for row in table.rows if size(row) > 0 and throughput(row, by) > 0
            and not (several and value(row, "epoch") <= 1)]
    others = [name for name in table.config if name not in ("batch_size", "global_batch_size", "processes_per_node")]
    names = [key(row, others) for row in rows]
    with_base = {name for name, row in zip(names, rows, strict=True) if size(row) == base_size(row)}
    served: set[int] = set()
    for based, held in ((True, batch), (True, global_batch), (False, batch), (False, global_batch)):
        groups: dict[tuple, Family] = defaultdict(lambda: defaultdict(list))
        for index, row in enumerate(rows):
            wanted = index not in served or (based and size(row) == base_size(row))
            if wanted and (names[index] in with_base) == based:
                group = names[index], held(row) if held(row) > 0 else None
                groups[group][size(row), max(0.0, value(row, "nodes"))].append(row | {"index": index})
        for family in groups.values():
            base = min(family)
            if len(family) > 1 and (not based or base[0] == base_size(family[base][0])):
                served |= {row["index"] for members in family.values() for row in members}
                yield by, family


@dataclasses.dataclass(frozen=True)
class Finding:
    """A figure that cannot be right, or a statement that the figures do not support."""

    where: str
    """File, or lab/run."""
    rows: tuple[int, ...]
    """Lines of the file; empty for a record."""
    rule: str
    text: str
    """The figures, and what they should be."""

    def __str__(self) -> str:
        lines = f", line{'s' * (len(self.rows) > 1)} {', '.join(map(str, self.rows))}" if self.rows else ""
        return f"{self.where}{lines}: {self.rule}: {self.text}"


def finding(rule: str, text: str, *rows: Row) -> Finding:
    """Return what a rule found in some rows."""
    return Finding(rows[0]["where"], tuple(row["row"] for row in rows if row["row"]), rule, text)


def brief(findings: Iterable[Finding]) -> list[str]:
    """Return a line per rule: the first finding in full, and where the others are."""
    rules: dict[str, list[Finding]] = defaultdict(list)
    for each in findings:
        rules[each.rule].append(each)
    lines = []
    for first, *others in rules.values():
        where = [", ".join(map(str, other.rows)) or other.where for other in others]
        more = f" and {len(where) - 9} more" if len(where) > 10 else ""
        likewise = f" (likewise {'lines ' if first.rows else ''}{', '.join(where[:9] if more else where)}{more})"
        lines.append(str(first) + likewise * bool(others))
    return lines
