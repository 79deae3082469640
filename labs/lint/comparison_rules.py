"""Rules about comparisons: what else changed, and whether a difference is noise."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator

from labs.lint.findings import Finding, finding
from labs.lint.table import (
    QUALITY,
    TIMES,
    Row,
    Table,
    divide,
    global_batch,
    key,
    near,
    number,
    size,
    value,
    workers_text,
)


def changed_learning_rate(table: Table) -> Iterator[Finding | None]:
    """A learning rate that no scaling rule brings from the compared rows with fewer workers: two things changed."""
    most = max((size(row) for row in table.rows if size(row) > 0), default=1.0)
    for name, free in (("learning_rate", {"batch_size", "global_batch_size"}), ("base_lr", {"base_lr"})):
        groups = defaultdict(list)
        for row in (row for row in table.having(name) if row[name] > 0):
            groups[key(row, [column for column in table.config if column not in free])].append(row)
        for group in groups.values():
            kinds = {(row[name], size(row), global_batch(row)): row for row in reversed(group)}.values()
            for row in group if len({row[name] for row in group}) > 1 else ():
                yield from _changed(row, kinds, name, most)


def _changed(row: Row, kinds: Iterable[Row], name: str, most: float) -> Iterator[Finding | None]:
    """Yield a finding if no row with fewer workers leads to this row's learning rate."""
    fewer = [other for other in kinds if size(other) < size(row) or (size(other) == 1 and not size(row) > 0)]
    if fewer:
        yield None
    if fewer and not any(_scaled(other, row, name, most) for other in fewer):
        other = min(fewer, key=lambda other: (size(other), other[name]))
        times = row[name] / other[name]
        place = f"line {other['row']}" if other["row"] else other["where"]
        yield finding("changed learning rate", f"{number(row[name])} against {number(other[name])} in {place}: "
                      f"{number(times) if times > 1 else '1/' + number(1 / times)} times, which no scaling rule "
                      f"gives for {workers_text(row)}; the rows do not compare numbers of workers", row)


def _scaled(other: Row, row: Row, name: str, most: float) -> bool:
    """Whether a learning rate follows from another's by a rule: none, linear or square root in the global batch."""
    ratio = row[name] / other[name]
    k = divide(global_batch(row), global_batch(other))
    if not k > 0:
        k = divide(size(row), size(other))
    if not k > 0:
        return 0.98 / most <= ratio <= 1.02 * most
    return any(near(ratio, right) for right in (1.0, k, math.sqrt(k)))


def two_things_changed(table: Table) -> Iterator[Finding | None]:
    """Accuracies compared between rows that differ in workers and in batch per worker, and no learning rate told."""
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
                          f"{workers_text(row)} of batch {number(row['batch_size'])}: the global batch "
                          f"is {number(times)} times as large; "
                          "tell both learning rates, and the rule between them", first, row)


def strong_scaling_that_is_none(table: Table) -> Iterator[Finding | None]:
    """Rows called strong scaling whose global batch is not held."""
    groups = defaultdict(list)
    others = [name for name in table.config if name not in ("batch_size", "processes_per_node", "threads")]
    for row in table.having("experiment"):
        if "strong" in str(row["experiment"]).lower() and global_batch(row) > 0:
            groups[key(row, others)].append(row)
    for first, *later in groups.values():
        for row in later:
            yield finding("strong scaling that is none", f"global batch {number(global_batch(row))} against "
                          f"{number(global_batch(first))} in line {first['row']}; strong scaling holds it", row
                          ) if global_batch(row) != global_batch(first) else None


def difference_within_noise(table: Table) -> Iterator[Finding | None]:
    """Accuracies of single runs that differ by less than two standard errors, sqrt(p (1 - p) / n) each.

    Only where accuracies are what the rows compare: beside times they say that nothing was lost.
    """
    if "test_accuracy" not in table.columns or {"spread", "seed", "repeats"} & table.columns:
        return
    groups = defaultdict(list)
    for row in table.having("test_accuracy"):
        if 0 < row["test_accuracy"] < 1:
            groups[key(row, ["learning_rate", *(name for name in table.config if name != "batch_size")])].append(row)
    for group in groups.values():
        timed = all(any(value(row, name) > 0 for name in ("images_per_sec", *TIMES, "speedup")) for row in group)
        digits = min(row.get("rounding", {}).get("test_accuracy", 0.0) for row in group)
        if timed or digits > 0.1 * _error(group[0]):  # Digits that are noise claim that it is none.
            continue
        best = max(group, key=lambda row: row["test_accuracy"])
        limit = {id(row): 2 * math.hypot(_error(row), _error(best)) for row in group}
        alike = [row for row in group if best["test_accuracy"] - row["test_accuracy"] < limit[id(row)]]
        if len(group) > 1:
            told = ", ".join(number(row["test_accuracy"]) for row in alike)
            yield finding("difference within noise", f"{told}: on {number(_images(best))} test images the standard "
                          f"error of each is {_error(best):.4f}, so they do not differ; repeat with seeds, and give "
                          "mean and interval", *alike) if len({size(row) for row in alike}) > 1 else None


def _images(row: Row) -> float:
    told = value(row, "test_images")
    return told if told > 0 else 10_000.0  # As many as the usual test sets have at most.


def _error(row: Row) -> float:
    return math.sqrt(row["test_accuracy"] * (1 - row["test_accuracy"]) / _images(row))
