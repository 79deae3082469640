"""Rules about bytes: communication, bandwidth, and what crosses the network."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from labs.lint.table import (
    Finding,
    Row,
    Table,
    divide,
    finding,
    first_positive,
    global_batch,
    grouped,
    key,
    near,
    number,
    size,
    value,
)

FASTEST = 500.0
"""GB/s that no all-reduce reaches on the links that an unnamed machine is likely to have.

Measured with nccl-tests: 370 between H100 (issue 212), 475 between eight H200 (issue 272). Newer GPUs have to be named.
"""
LINKS = (
    (r"\bG?B[23]00\b|NVLink ?5", 1000.0), (r"\bG?H[128]00\b|\bH20\b|NVLink ?4|\bMI[23]\d\d", FASTEST),
    (r"\bA[18]00\b|NVLink ?3", 330.0), (r"\bV100\b|NVLink ?2", 165.0), (r"\bA30\b", 110.0),
    (r"\bP100\b|NVLink ?1", 90.0),
    (r"\b([TL]4|L40S?|A40|A10G?|A16|K[468]0|M[46]0|P40|[RG]TX|TITAN)\b|PCIe", 64.0),
)
"""Hardware that a row may name, and GB/s that its all-reduce cannot exceed: one direction of NVLink, plus a tenth."""
NETWORKS = ((r"\bNDR\b", 50.0), (r"\bHDR\b", 25.0), (r"\bEDR\b", 12.5), (r"\bFDR\b", 7.0), (r"\bQDR\b", 4.0))
"""Generations of InfiniBand, and GB/s of one network card."""
RAILS = 8
"""Network cards that a node with InfiniBand may have."""
SPEED = re.compile(r"(\d+) ?(?:Gbit/s|Gbps|Gb/s|GbE\b|G\b ?(?:Ethernet|network)|Gigabit)", re.IGNORECASE)

SHAPES = {28 * 28 * 4: "28 x 28 x 4", 28 * 28: "28 x 28",
          32 * 32 * 3 * 4: "32 x 32 x 3 x 4", 32 * 32 * 3: "32 x 32 x 3"}
"""Bytes of an image of MNIST and of CIFAR-10, with four bytes per number and with one."""

FACTORS = {"allreduce": 2.0, "allgather": 1.0, "reducescatter": 1.0, "alltoall": 1.0}
"""busbw / algbw, in units of (n - 1) / n. Source: nccl-tests, doc/PERFORMANCE.md."""


def _gradient_bytes(row: Row) -> float:
    return first_positive(value(row, "gradient_bytes"), 4 * value(row, "parameters"))


def _steps(row: Row) -> float:
    """Return the steps of one epoch; of one worker, if the row names no number of workers."""
    steps = divide(value(row, "images"), first_positive(global_batch(row), value(row, "batch_size")))
    return first_positive(value(row, "steps_per_epoch"), math.ceil(steps) if steps > 0 else math.nan)


def _link(row: Row) -> float:
    """Return the GB/s that a row's link can carry at most, by its column or the hardware that it names."""
    if value(row, "link") > 0:
        return 1.05 * value(row, "link")
    gpus = row.get("gpus")
    words = " ".join(map(str, gpus)) if isinstance(gpus, list) else str(row.get("words", ""))
    if gpus == [] and value(row, "nodes") == 1:
        return 100.0  # Through memory: a CPU's cores copy no faster.
    speeds = [float(speed) / 8 for speed in SPEED.findall(words)]
    speeds += [speed * RAILS for pattern, speed in NETWORKS if re.search(pattern, words)]
    network = max(speeds, default=math.nan)
    inside = max((most for pattern, most in LINKS if re.search(pattern, words, re.IGNORECASE)), default=math.nan)
    if value(row, "nodes") > 1 and network > 0:
        return 1.05 * network
    if inside > 0 or (network > 0 and value(row, "nodes") != 1):
        return max(most for most in (inside, network) if most > 0)
    return FASTEST


def _reason(row: Row) -> str:
    """Say where a row's limit is from."""
    link = number(_link(row))
    if value(row, "link") > 0:
        return f"the link has {number(value(row, 'link'))}"
    if _link(row) == FASTEST and not re.search(LINKS[1][0], str(row.get("words", "")) + str(row.get("gpus", ""))):
        return f"no all-reduce reaches {link} over today's NVLink (name newer GPUs, or give a column link_gb_per_sec)"
    return f"no all-reduce reaches {link} on the hardware that the row names"


def _ring(row: Row) -> float:
    """Return how often a ring all-reduce sends each byte: 2 (n - 1) / n."""
    return divide(2 * (size(row) - 1), size(row))


def _communicating(table: Table, *columns: str) -> list[Row]:
    """Return the rows of several workers with a time of communication."""
    return [row for row in table.having("communication_seconds", *columns)
            if size(row) > 1 and row["communication_seconds"] > 0]


def too_little_communication(table: Table) -> Iterator[Finding | None]:
    """Find communication so short that no link could have carried the gradients: something else was timed."""
    rows = _communicating(table)
    # If one step's communication in every step would fit into the epoch, the seconds may be those of one step.
    of_epoch = any(not row["communication_seconds"] * _steps(row) <= value(row, "epoch_seconds") for row in rows)
    for row in rows:
        each, steps, seconds = _gradient_bytes(row), _steps(row), row["communication_seconds"]
        needed = divide(each * (steps if of_epoch else 1), seconds) / 1e9
        if needed > 0:
            yield finding("too little communication", f"{number(each / 1e6)} MB of gradients x {number(steps)} steps "
                          f"in {number(seconds)} s would be {number(needed)} GB/s ({number(_ring(row) * needed)} on "
                          f"the bus); {_reason(row)}: was the data loader timed? Pair steps with and without the "
                          "all-reduce", row) if max(1.0, _ring(row)) * needed > _link(row) else None


def wrong_bandwidth(table: Table) -> Iterator[Finding | None]:
    """Find bandwidths that are not gradient bytes / seconds (x 2 (n - 1) / n)."""
    rows = _communicating(table, "bandwidth")
    same = _same_bytes(rows) if "epoch_seconds" in table.columns else ""
    for row in rows:
        seconds, each, steps = row["communication_seconds"], _gradient_bytes(row), _steps(row)
        moved = row["bandwidth"] * seconds * 1e9
        if not (each > 0 or same):
            continue
        if any(near(moved, each * count * factor, 0.1) for count in (steps, 1.0) for factor in (1.0, _ring(row))):
            yield None
            continue
        right = divide(each * steps * _ring(row), seconds) / 1e9
        cure = (f"; {number(each / 1e6)} MB of gradients x {number(steps)} steps would be {number(right)} GB/s on the "
                "bus") if right > 0 else ""
        what = _data_set(row, moved) or same or "not those of the gradients"
        not_gradients = f", not of the gradients ({number(each / 1e6)} MB)" * bool(each > 0 and "data set" in what)
        yield finding("wrong bandwidth", f"{number(row['bandwidth'])} GB/s x {number(seconds)} s are "
                      f"{number(moved / 1e6)} MB, {what}{not_gradients}{cure}; it should be gradient bytes / seconds x "
                      "2 (n - 1) / n", row)


def _same_bytes(rows: list[Row]) -> str:
    """Say so if all rows moved the same bytes per epoch although their steps differ."""
    moved = [row["bandwidth"] * row["communication_seconds"] for row in rows]
    batches = [global_batch(row) for row in rows]
    if len(rows) > 1 and min(moved) > 0 and near(max(moved), min(moved)) and max(batches) > 1.9 * min(batches):
        return "as in every row, for any number of steps: the size of the data set"
    return ""


def _data_set(row: Row, moved: float) -> str:
    """Say so if bytes are those of all images."""
    images = value(row, "images")
    shape = next((shape for each, shape in SHAPES.items() if near(moved, each * images, 0.005)), "")
    return f"{number(images)} x {shape}: the size of the data set" if shape else ""


def bandwidth_above_the_machines(table: Table) -> Iterator[Finding | None]:
    """Find bandwidths that the row's link, or any link, cannot have."""
    for row in table.rows:
        stated = max((value(row, name) for name in ("bandwidth", "algbw") if value(row, name) > 0), default=math.nan)
        if stated > 0:
            yield finding("bandwidth above the machine's", f"{number(stated)} GB/s; {_reason(row)}", row
                          ) if stated > _link(row) else None


def _by_batch(table: Table, rows: list[Row]) -> list[list[Row]]:
    """Return rows in groups that may differ only in the batch size."""
    others = [column for column in table.config if column != "batch_size"]
    return grouped(rows, lambda row: (*key(row, others), first_positive(size(row), 0.5)))


def bytes_by_batch(table: Table) -> Iterator[Finding | None]:
    """Find bytes of gradients that change with the batch: they were added up over the steps of an epoch."""
    pattern = r"(?!.*(gradient|memory|ram|input|data|file|disk|model))(.*_bytes(_per_step)?|bytes_per_step)"
    for name in sorted(name for name in table.columns if re.fullmatch(pattern, name)):
        for group in _by_batch(table, table.having(name, "batch_size")):
            yield from _changing_bytes(name, group)


def _changing_bytes(name: str, group: list[Row]) -> Iterator[Finding | None]:
    values = [row[name] for row in group]
    products = [row[name] * row["batch_size"] for row in group]
    added = min(values) > 0 and near(max(products), min(products), 0.1)
    changes = name.endswith("_per_step") and not near(max(values), min(values))
    if len({row["batch_size"] for row in group}) < 2:
        return
    yield None
    for row in group if added or changes else ():
        steps = _steps(row)
        each = f" / {number(steps)} steps = {number(row[name] / steps)}" if added and steps > 0 else ""
        yield finding("bytes by batch", f"{name.partition('_bytes')[0]} bytes {number(row[name])}{each}: per step they "
                      "are the same for every batch; an epoch has fewer steps when the batch is larger (which of the "
                      "two is it?)", row)


def bytes_per_step(table: Table) -> Iterator[Finding | None]:
    """Find bytes per epoch that are not the same bytes in each step for every batch."""
    for name in sorted(name for name in table.columns if name.endswith("_bytes_per_epoch")):
        rows = [row for row in table.having(name, "steps_per_epoch") if row[name] > 0 and row["steps_per_epoch"] > 0]
        for group in (group for group in _by_batch(table, rows) if len(group) > 1):
            each = [row[name] / row["steps_per_epoch"] for row in group]
            yield finding("bytes by batch", f"bytes per epoch / steps per epoch = {', '.join(map(number, each))}: per "
                          "step the gradients are the same bytes for every batch", *group
                          ) if max(each) > 1.1 * min(each) else None


def input_is_no_traffic(table: Table) -> Iterator[Finding | None]:
    """Find bytes of the input data that were taken for bytes on the network."""
    for name in sorted(name for name in table.columns if re.fullmatch(r"(?!.*(input|data)).*_bytes", name)):
        for row in table.having(name):
            counts = [value(row, "images")] if value(row, "images") > 0 else [60_000, 50_000]
            yield None
            for count, shape in ((count, shape) for count in counts for each, shape in SHAPES.items()
                                 if near(row[name], each * count, 0.0005)):
                yield finding("input is no traffic", f"{name.removesuffix('_bytes')} bytes {number(row[name])} = "
                              f"{number(count)} x {shape}, the input set: each worker reads it "
                              "itself, and it never crosses the network", row)


def wrong_busbw(table: Table) -> Iterator[Finding | None]:
    """Find bandwidths of collectives that do not follow from bytes and seconds."""
    for row in table.having("bytes", "seconds", "algbw"):
        if row["seconds"] > 0:
            right = row["bytes"] / row["seconds"] / 1e9
            yield finding("wrong bandwidth", f"algbw {number(row['algbw'])} GB/s is not {number(row['bytes'])} bytes / "
                          f"{number(row['seconds'])} s = {number(right)} GB/s", row
                          ) if not near(row["algbw"], right, 0.1) else None
    for row in table.having("bandwidth", "size"):
        name = re.sub(r"\W|_", "", str(row.get("collective") or "").lower())
        share = divide(size(row) - 1, size(row))
        algbw = first_positive(value(row, "algbw"), divide(value(row, "bytes"), value(row, "seconds")) / 1e9)
        # A "bandwidth" may be bytes / seconds. The bus bandwidth of a broadcast is.
        factors = [FACTORS[name] * share] if name in FACTORS else [
            2 * share, share, *([] if "bus" in table.columns and not name else [1.0])]
        if algbw > 0 and size(row) > 1:
            yield finding("wrong bandwidth", f"busbw {number(row['bandwidth'])} GB/s is not {number(algbw)} GB/s "
                          f"(bytes / seconds) x 2 (n - 1) / n = {number(algbw * _ring(row))} GB/s", row
                          ) if not any(near(row["bandwidth"], algbw * factor, 0.1) for factor in factors) else None
