"""The rules of `labs lint` about bytes: communication, bandwidth, and what crosses the network."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator

from labs.lint.findings import Finding, finding
from labs.lint.table import Row, Table, divide, global_batch, key, near, number, size, value

FASTEST = 500.0
"""GB/s: what no all-reduce reached on any link that an unnamed machine is likely to have.

Measured with nccl-tests: 370 between H100 (issue 212), 475 between eight H200 (issue 272). Newer GPUs have to be named.
"""
LINKS = (  # What a table may name; GB/s that its all-reduce cannot exceed: NVLink's one direction, and a tenth more.
    (r"\bG?B[23]00\b|NVLink ?5", 1000.0), (r"\bG?H[128]00\b|\bH20\b|NVLink ?4|\bMI[23]\d\d", FASTEST),
    (r"\bA[18]00\b|NVLink ?3", 330.0), (r"\bV100\b|NVLink ?2", 165.0), (r"\bA30\b", 110.0),
    (r"\bP100\b|NVLink ?1", 90.0),
    (r"\b([TL]4|L40S?|A40|A10G?|A16|K[468]0|M[46]0|P40|[RG]TX|TITAN)\b|PCIe", 64.0),
)
RAILS = 8
"""Network cards that a node may have, if its network is InfiniBand: a name says what one of them carries."""
NETWORKS = ((r"\bNDR\b", 50.0), (r"\bHDR\b", 25.0), (r"\bEDR\b", 12.5), (r"\bFDR\b", 7.0), (r"\bQDR\b", 4.0))
SPEED = re.compile(r"(\d+) ?(?:Gbit/s|Gbps|Gb/s|GbE\b|G\b ?(?:Ethernet|network)|Gigabit)", re.IGNORECASE)


def _gradient_bytes(row: Row) -> float:
    told = value(row, "gradient_bytes")
    return told if told > 0 else 4 * value(row, "parameters")


def _steps(row: Row) -> float:
    """Return the steps of one epoch; of one worker, if the row names none."""
    told, batch = value(row, "steps_per_epoch"), global_batch(row)
    batch = batch if batch > 0 else value(row, "batch_size")
    steps = divide(value(row, "images"), batch)
    return told if told > 0 else math.ceil(steps) if steps > 0 else math.nan


def _link(row: Row) -> float:
    """Return what a row's link can carry at most, in GB/s: as its column says, by the hardware it names, or any."""
    told = value(row, "link")
    if told > 0:
        return 1.05 * told
    gpus = row.get("gpus")
    words = " ".join(map(str, gpus)) if isinstance(gpus, list) else str(row.get("words", ""))
    if gpus == [] and value(row, "nodes") == 1:
        return 100.0  # Through memory: a CPU's cores copy no faster.
    network = max((speed * RAILS for pattern, speed in NETWORKS if re.search(pattern, words)), default=math.nan)
    speeds = [float(found) / 8 for found in SPEED.findall(words)]
    network = max([*speeds, *([network] if network > 0 else [])], default=math.nan)
    inside = max((most for pattern, most in LINKS if re.search(pattern, words, re.IGNORECASE)), default=math.nan)
    if value(row, "nodes") > 1 and network > 0:
        return 1.05 * network
    named = [most for most in (inside, network) if most > 0]
    return max(named) if inside > 0 or (network > 0 and value(row, "nodes") != 1) else FASTEST


def _says(row: Row) -> str:
    """Say where a row's limit is from."""
    link = number(_link(row))
    if value(row, "link") > 0:
        return f"the link has {number(value(row, 'link'))}"
    if _link(row) == FASTEST and not re.search(LINKS[1][0], str(row.get("words", "")) + str(row.get("gpus", ""))):
        return f"no all-reduce reaches {link} over today's NVLink (name newer GPUs, or give a column link_gb_per_sec)"
    return f"no all-reduce reaches {link} on the hardware that the row names"


def _ring(row: Row) -> float:
    """Return how often a ring sends each byte that is reduced: 2 (n - 1) / n."""
    return divide(2 * (size(row) - 1), size(row))


def too_little_communication(table: Table) -> Iterator[Finding | None]:
    """Communication so short that no link could have carried the gradients: something else was timed."""
    rows = [row for row in table.having("communication_seconds") if size(row) > 1 and row["communication_seconds"] > 0]
    # Seconds that fit into the epoch once per step may be those of one step.
    of_epoch = any(not row["communication_seconds"] * _steps(row) <= value(row, "epoch_seconds") for row in rows)
    for row in rows:
        each, steps, seconds = _gradient_bytes(row), _steps(row), row["communication_seconds"]
        needed = divide(each * (steps if of_epoch else 1), seconds) / 1e9
        if needed > 0:
            yield finding("too little communication", f"{number(each / 1e6)} MB of gradients x {number(steps)} steps "
                          f"in {number(seconds)} s would be {number(needed)} GB/s ({number(_ring(row) * needed)} on "
                          f"the bus); {_says(row)}: was the data loader timed? Pair steps with and without the "
                          "all-reduce", row) if max(1.0, _ring(row)) * needed > _link(row) else None


def wrong_bandwidth(table: Table) -> Iterator[Finding | None]:
    """A bandwidth that is not gradient bytes / seconds (x 2 (n - 1) / n)."""
    told = [row for row in table.having("bandwidth", "communication_seconds")
            if size(row) > 1 and row["communication_seconds"] > 0]
    same = _alike(told) if "epoch_seconds" in table.columns else ""
    for row in told:
        moved, each, steps = row["bandwidth"] * row["communication_seconds"] * 1e9, _gradient_bytes(row), _steps(row)
        right = [each * count * factor for count in (steps, 1.0) for factor in (1.0, _ring(row))]
        if not (each > 0 or same):
            continue
        yield None
        if not any(near(moved, amount, 0.1) for amount in right):
            should = divide(each * steps * _ring(row), row["communication_seconds"]) / 1e9
            cure = (f"; {number(each / 1e6)} MB of gradients x {number(steps)} steps would be {number(should)} GB/s on "
                    "the bus") if should > 0 else ""
            seconds = number(row["communication_seconds"])
            what = _pictures(row, moved) or same or "not those of the gradients"
            not_gradients = f", not of the gradients ({number(each / 1e6)} MB)" * bool(each > 0 and "data set" in what)
            yield finding("wrong bandwidth", f"{number(row['bandwidth'])} GB/s x {seconds} s are "
                          f"{number(moved / 1e6)} MB, {what}{not_gradients}{cure}; it should be gradient bytes / "
                          "seconds x 2 (n - 1) / n", row)


def _alike(told: list[Row]) -> str:
    """Say so, if all rows moved the same bytes per epoch although their steps differ."""
    moved = [row["bandwidth"] * row["communication_seconds"] for row in told]
    batches = [global_batch(row) for row in told]
    if len(told) > 1 and min(moved) > 0 and near(max(moved), min(moved)) and max(batches) > 1.9 * min(batches):
        return "as in every row, whatever its number of steps: the size of the data set"
    return ""


def _pictures(row: Row, moved: float) -> str:
    """Say so, if bytes are those of all images."""
    images = value(row, "images")
    shape = next((shape for each, shape in SHAPES.items() if near(moved, each * images, 0.005)), "")
    return f"{number(images)} x {shape}: the size of the data set" if shape else ""


def bandwidth_above_the_machines(table: Table) -> Iterator[Finding | None]:
    """A bandwidth that the link, or any link, cannot have."""
    for row in table.rows:
        told = max((value(row, name) for name in ("bandwidth", "algbw") if value(row, name) > 0), default=math.nan)
        if told > 0:
            yield finding("bandwidth above the machine's", f"{number(told)} GB/s; {_says(row)}", row
                          ) if told > _link(row) else None


def bytes_by_batch(table: Table) -> Iterator[Finding | None]:
    """Bytes of gradients that change with the batch: they were added up over an epoch's steps."""
    pattern = r"(?!.*(gradient|memory|ram|input|data|file|disk|model))(.*_bytes(_per_step)?|bytes_per_step)"
    for name in sorted(name for name in table.columns if re.fullmatch(pattern, name)):
        groups = defaultdict(list)
        others = [column for column in table.config if column != "batch_size"]
        for row in table.having(name, "batch_size"):
            groups[(*key(row, others), size(row) if size(row) > 0 else None)].append(row)
        for group in groups.values():
            yield from _by_batch(name, group)


def bytes_per_step(table: Table) -> Iterator[Finding | None]:
    """Bytes of an epoch that are not the same bytes in each of its steps, whatever the batch."""
    for name in sorted(name for name in table.columns if name.endswith("_bytes_per_epoch")):
        groups = defaultdict(list)
        others = [column for column in table.config if column != "batch_size"]
        for row in table.having(name, "steps_per_epoch"):
            if row[name] > 0 and row["steps_per_epoch"] > 0:
                groups[(*key(row, others), size(row) if size(row) > 0 else None)].append(row)
        for group in groups.values():
            each = [row[name] / row["steps_per_epoch"] for row in group]
            if len(group) > 1:
                told = ", ".join(number(one) for one in each)
                yield finding("bytes by batch", f"bytes per epoch / steps per epoch = {told}: per step the gradients "
                              "are the same bytes for every batch", *group) if max(each) > 1.1 * min(each) else None


def _by_batch(name: str, group: list[Row]) -> Iterator[Finding | None]:
    values = [row[name] for row in group]
    products = [row[name] * row["batch_size"] for row in group]
    added = min(values) > 0 and near(max(products), min(products), 0.1)
    changes = name.endswith("_per_step") and not near(max(values), min(values))
    if len({row["batch_size"] for row in group}) < 2:
        return
    yield None
    if not (added or changes):
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


def input_is_no_traffic(table: Table) -> Iterator[Finding | None]:
    """Bytes of the input data taken for bytes on the network."""
    for name in sorted(name for name in table.columns if re.fullmatch(r"(?!.*(input|data)).*_bytes", name)):
        for row in table.having(name):
            counts = [value(row, "images")] if value(row, "images") > 0 else [60_000, 50_000]
            yield None
            for count, shape in ((count, shape) for count in counts for each, shape in SHAPES.items()
                                 if near(row[name], each * count, 0.0005)):
                yield finding("input is no traffic", f"{name.removesuffix('_bytes')} bytes {number(row[name])} = "
                              f"{number(count)} x {shape}, the input set: each worker reads it "
                              "itself, and it never crosses the network", row)


FACTORS = {"allreduce": (2.0,), "allgather": (1.0,), "reducescatter": (1.0,), "alltoall": (1.0,)}
"""busbw / algbw, in units of (n - 1) / n. Source: nccl-tests, doc/PERFORMANCE.md."""


def wrong_busbw(table: Table) -> Iterator[Finding | None]:
    """Rows of a study of collectives whose bandwidths do not follow from bytes and seconds."""
    for row in table.having("bytes", "seconds", "algbw"):
        if row["seconds"] > 0:
            yield finding("wrong bandwidth", f"algbw {number(row['algbw'])} GB/s is not {number(row['bytes'])} bytes / "
                          f"{number(row['seconds'])} s = {number(row['bytes'] / row['seconds'] / 1e9)} GB/s", row
                          ) if not near(row["algbw"], row["bytes"] / row["seconds"] / 1e9, 0.1) else None
    for row in table.having("bandwidth", "size"):
        name = re.sub(r"\W|_", "", str(row.get("collective") or "").lower())
        share = divide(size(row) - 1, size(row))
        algbw = value(row, "algbw")
        if not algbw > 0:
            algbw = divide(value(row, "bytes"), value(row, "seconds")) / 1e9
        rights = [factor * share for factor in FACTORS.get(name, ())] or [
            # A "bandwidth" may be bytes / seconds; that of a broadcast is, on the bus too.
            2 * share, share, *([] if "bus" in table.columns and not name else [1.0])]
        if algbw > 0 and size(row) > 1:
            yield finding("wrong bandwidth", f"busbw {number(row['bandwidth'])} GB/s is not {number(algbw)} GB/s "
                          f"(bytes / seconds) x 2 (n - 1) / n = {number(algbw * _ring(row))} GB/s", row
                          ) if not any(near(row["bandwidth"], algbw * right, 0.1) for right in rights) else None


RULES = (
    too_little_communication, wrong_bandwidth, bytes_by_batch, bytes_per_step, input_is_no_traffic, wrong_busbw,
)
