"""The rules of `labs lint` about bytes: communication, bandwidth, and what crosses the network."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator

from labs.report.findings import Finding, Row, Table, finding, global_batch, key, near, number, over, size, value

FASTEST_LINK = 100e9
"""Bytes per second that only the NVLinks inside one node exceed."""


def _gradient_bytes(row: Row) -> float:
    told = value(row, "gradient_bytes")
    return told if told > 0 else 4 * value(row, "parameters")


def _steps(row: Row) -> float:
    """Return the steps of one epoch; of one worker, if the row names none."""
    told, batch = value(row, "steps_per_epoch"), global_batch(row)
    batch = batch if batch > 0 else value(row, "batch_size")
    steps = over(value(row, "images"), batch)
    return told if told > 0 else math.ceil(steps) if steps > 0 else math.nan


def _link(row: Row) -> float:
    """Return what a worker's link can carry at most, in bytes per second."""
    told = max((value(row, name) * unit for name, unit in (("link", 1e9), ("link_gbit_per_sec", 1e9 / 8))
                if value(row, name) > 0), default=math.nan)
    return told if told > 0 else FASTEST_LINK


def _ring(row: Row) -> float:
    """Return how often a ring sends each byte that is reduced: 2 (n - 1) / n."""
    return over(2 * (size(row) - 1), size(row))


def too_little_communication(table: Table) -> Iterator[Finding]:
    """Communication so short that no link could have carried the gradients: something else was timed."""
    for row in table.having("communication_seconds"):
        each, steps, seconds = _gradient_bytes(row), _steps(row), row["communication_seconds"]
        needed = over(each * steps, seconds) / 1e9
        if size(row) > 1 and max(1.0, _ring(row)) * needed > 1.05 * _link(row) / 1e9:
            yield finding("too little communication", f"{number(each / 1e6)} MB of gradients x {number(steps)} steps "
                          f"in {number(seconds)} s would be {number(needed)} GB/s ({number(_ring(row) * needed)} on "
                          f"the bus), above {number(_link(row) / 1e9)}: was the data loader timed? Pair steps with and "
                          "without the all-reduce", row)


def wrong_bandwidth(table: Table) -> Iterator[Finding]:
    """A bandwidth that is not gradient bytes / seconds (x 2 (n - 1) / n)."""
    told = [row for row in table.having("bandwidth", "communication_seconds")
            if size(row) > 1 and row["communication_seconds"] > 0]
    same = _alike(told) if "epoch_seconds" in table.columns else ""
    for row in told:
        moved, each, steps = row["bandwidth"] * row["communication_seconds"] * 1e9, _gradient_bytes(row), _steps(row)
        right = [each * count * factor for count in (steps, 1.0) for factor in (1.0, _ring(row))]
        if (each > 0 or same) and not any(near(moved, amount, 0.1) for amount in right):
            should = over(each * steps * _ring(row), row["communication_seconds"]) / 1e9
            cure = (f"; {number(each / 1e6)} MB of gradients x {number(steps)} steps would be {number(should)} GB/s on "
                    "the bus") if should > 0 else ""
            seconds = number(row["communication_seconds"])
            yield finding("wrong bandwidth", f"{number(row['bandwidth'])} GB/s x {seconds} s are {number(moved / 1e6)} "
                          f"MB, {same or 'not those of the gradients'}{cure}; it should be gradient bytes / seconds "
                          "x 2 (n - 1) / n", row)


def _alike(told: list[Row]) -> str:
    """Say so, if all rows moved the same bytes per epoch although their steps differ."""
    moved = [row["bandwidth"] * row["communication_seconds"] for row in told]
    batches = [global_batch(row) for row in told]
    if len(told) > 1 and min(moved) > 0 and near(max(moved), min(moved)) and max(batches) > 1.9 * min(batches):
        return "as in every row, whatever its number of steps: the size of the data set"
    return ""


def bandwidth_above_the_machines(table: Table) -> Iterator[Finding]:
    """A bandwidth that the link, or any link between nodes, cannot have."""
    for row in table.having("bandwidth"):
        if row["bandwidth"] * 1e9 > 1.05 * _link(row):
            link = number(_link(row) / 1e9)
            limit = (f"no network has more than {link} (a column link_gb_per_sec says what yours has)"
                     if _link(row) == FASTEST_LINK else f"the link has {link}")
            yield finding("bandwidth above the machine's", f"{number(row['bandwidth'])} GB/s; {limit}", row)


def bytes_by_batch(table: Table) -> Iterator[Finding]:
    """Bytes of gradients that change with the batch: they were added up over an epoch's steps."""
    other = {"gradient_bytes", "memory_bytes", "input_bytes"}
    for name in sorted(name for name in table.columns - other if re.fullmatch(r".*_bytes(_per_step)?", name)):
        groups = defaultdict(list)
        others = [column for column in table.config if column != "batch_size"]
        for row in table.having(name, "batch_size"):
            groups[(*key(row, others), size(row) if size(row) > 0 else None)].append(row)
        for group in groups.values():
            yield from _by_batch(name, group)


def _by_batch(name: str, group: list[Row]) -> Iterator[Finding]:
    values = [row[name] for row in group]
    products = [row[name] * row["batch_size"] for row in group]
    added = min(values) > 0 and near(max(products), min(products), 0.1)
    changes = name.endswith("_per_step") and not near(max(values), min(values))
    if len({row["batch_size"] for row in group}) < 2 or not (added or changes):
        return
    plain = name.partition("_bytes")[0]
    for row in group:
        steps = _steps(row)
        each = f" / {number(steps)} steps = {number(row[name] / steps)}" if added and steps > 0 else ""
        yield finding("bytes by batch", f"{plain} bytes {number(row[name])}{each}: per step they are the same for "
                      "every batch; an epoch has fewer steps when the batch is larger (which of the two is it?)", row)


SHAPES = {28 * 28 * 4: "28 x 28 x 4", 28 * 28: "28 x 28",
          32 * 32 * 3 * 4: "32 x 32 x 3 x 4", 32 * 32 * 3: "32 x 32 x 3"}
"""Bytes of one picture of MNIST and of CIFAR-10, as numbers of four bytes and of one."""


def input_is_no_traffic(table: Table) -> Iterator[Finding]:
    """Bytes of the input data taken for bytes on the network."""
    for name in sorted(name for name in table.columns if re.fullmatch(r"(?!.*(input|data)).*_bytes", name)):
        for row in table.having(name):
            counts = [value(row, "images")] if value(row, "images") > 0 else [60_000, 50_000]
            for count in [count for count in counts if row[name] / count in SHAPES]:
                yield finding("input is no traffic", f"{name.removesuffix('_bytes')} bytes {number(row[name])} = "
                              f"{number(count)} x {SHAPES[row[name] / count]}, the input set: each worker reads it "
                              "itself, and it never crosses the network", row)


def wrong_busbw(table: Table) -> Iterator[Finding]:
    """Rows of a study of collectives whose bandwidths do not follow from bytes and seconds."""
    for row in table.having("bytes", "seconds", "algbw"):
        if row["seconds"] > 0 and not near(row["algbw"], row["bytes"] / row["seconds"], 0.1):
            yield finding("wrong bandwidth", f"algbw {number(row['algbw'])} is not {number(row['bytes'])} bytes / "
                          f"{number(row['seconds'])} s", row)
    for row in table.having("algbw", "busbw", "size"):
        if str(row.get("collective")) == "allreduce" and not near(row["busbw"], row["algbw"] * _ring(row), 0.1):
            yield finding("wrong bandwidth", f"busbw {number(row['busbw'])} is not algbw {number(row['algbw'])} "
                          f"x 2 (n - 1) / n = {number(row['algbw'] * _ring(row))}", row)


RULES = (
    too_little_communication, wrong_bandwidth, bandwidth_above_the_machines, bytes_by_batch, input_is_no_traffic,
    wrong_busbw,
)
