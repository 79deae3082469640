"""Rules about comparisons: what else changed, and whether a difference is noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from labs.course.plausibility.table import (
    QUALITY,
    TIMES,
    Finding,
    Row,
    Table,
    configurations,
    divide,
    finding,
    first_positive,
    global_batch,
    near,
    number,
    size,
    value,
    workers_text,
)


def changed_learning_rate(table: Table) -> Iterator[Finding | None]:
    """Find a learning rate that no scaling rule gives from the rows with fewer workers: two things changed."""
    most = max((size(row) for row in table.rows if size(row) > 0), default=1.0)
    for name, free in (("learning_rate", {"batch_size", "global_batch_size"}), ("base_lr", {"base_lr"})):
        for group in configurations(table, (row for row in table.having(name) if row[name] > 0), without=free):
            kinds = {(row[name], size(row), global_batch(row)): row for row in reversed(group)}.values()
            for row in group if len({row[name] for row in group}) > 1 else ():
                yield from _changed(row, kinds, name, most)


def _changed(row: Row, kinds: Iterable[Row], name: str, most: float) -> Iterator[Finding | None]:
    """Yield a finding if this row's learning rate follows from no row with fewer workers."""
    fewer = [other for other in kinds if size(other) < size(row) or (size(other) == 1 and not size(row) > 0)]
    if not fewer:
        return
    other = min(fewer, key=lambda other: (size(other), other[name]))
    times = row[name] / other[name]
    where = f"line {other['row']}" if other["row"] else other["where"]
    yield None if any(_scaled(other, row, name, most) for other in fewer) else finding(
        "changed learning rate", f"{number(row[name])} against {number(other[name])} in {where}: "
        f"{number(times) if times > 1 else '1/' + number(1 / times)} times, which no scaling rule gives for "
        f"{workers_text(row)}; the rows do not compare numbers of workers", row)


def _scaled(other: Row, row: Row, name: str, most: float) -> bool:
    """Return whether a learning rate follows from another's by a rule (none, linear, sqrt) in the global batch."""
    ratio = row[name] / other[name]
    k = first_positive(divide(global_batch(row), global_batch(other)), divide(size(row), size(other)))
    if not k > 0:
        return 0.98 / most <= ratio <= 1.02 * most
    return any(near(ratio, right) for right in (1.0, k, math.sqrt(k)))


def two_things_changed(table: Table) -> Iterator[Finding | None]:
    """Find accuracies of rows that differ in workers and in batch per worker, in a table without learning rates."""
    quality = [name for name in QUALITY if name in table.columns]
    if not quality or {"learning_rate", "base_lr", "scaling"} & table.columns:
        return
    shaped = [row for row in table.having(quality[0], "batch_size") if size(row) > 0]
    shapes = {(row["batch_size"], size(row)) for row in shaped}
    for row in shaped:
        others = {(b, n) for b, n in shapes if b * n != row["batch_size"] * size(row)}
        if others and size(row) > 1 and all(row["batch_size"] != b and size(row) != n for b, n in others):
            first = min(shaped, key=size)
            times = divide(global_batch(row), global_batch(first))
            yield finding("two things changed", f"{workers_text(first)} of batch {number(first['batch_size'])} against "
                          f"{workers_text(row)} of batch {number(row['batch_size'])}: the global batch is "
                          f"{number(times)} times as large; state both learning rates, and the rule between them",
                          first, row)


def strong_scaling_that_is_none(table: Table) -> Iterator[Finding | None]:
    """Find rows called strong scaling whose global batch changes."""
    rows = [row for row in table.having("experiment")
            if "strong" in str(row["experiment"]).lower() and global_batch(row) > 0]
    for first, *later in configurations(table, rows, without=("batch_size", "processes_per_node", "threads")):
        for row in later:
            yield finding("strong scaling that is none", f"global batch {number(global_batch(row))} against "
                          f"{number(global_batch(first))} in line {first['row']}; strong scaling keeps it constant", row
                          ) if global_batch(row) != global_batch(first) else None


def difference_within_noise(table: Table) -> Iterator[Finding | None]:
    """Find accuracies of single runs that differ by less than two standard errors, sqrt(p (1 - p) / n) each.

    Applies only if the rows compare accuracies. Next to times, accuracies only show that nothing was lost.
    """
    if "test_accuracy" not in table.columns or {"spread", "seed", "repeats"} & table.columns:
        return
    rows = [row for row in table.having("test_accuracy") if 0 < row["test_accuracy"] < 1]
    for group in configurations(table, rows, ("batch_size",), "learning_rate"):
        timed = all(any(value(row, name) > 0 for name in ("images_per_sec", *TIMES, "speedup")) for row in group)
        rounding = min(row.get("rounding", {}).get("test_accuracy", 0.0) for row in group)
        if len(group) < 2 or timed or rounding > 0.1 * _error(group[0]):  # Rounded to digits that are not noise.
            continue
        best = max(group, key=lambda row: row["test_accuracy"])
        alike = [row for row in group
                 if best["test_accuracy"] - row["test_accuracy"] < 2 * math.hypot(_error(row), _error(best))]
        accuracies = ", ".join(number(row["test_accuracy"]) for row in alike)
        yield finding("difference within noise", f"{accuracies}: on {number(_images(best))} test images the standard "
                      f"error of each is {_error(best):.4f}, so they do not differ; repeat with seeds, and give "
                      "mean and interval", *alike) if len({size(row) for row in alike}) > 1 else None


def _images(row: Row) -> float:
    return first_positive(value(row, "test_images"), 10_000.0)  # The usual test sets have no more.


def _error(row: Row) -> float:
    return math.sqrt(row["test_accuracy"] * (1 - row["test_accuracy"]) / _images(row))
