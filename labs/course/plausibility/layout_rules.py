"""Rules about how many workers ran, and where."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from labs.course.plausibility.table import (
    QUALITY,
    TIMES,
    Finding,
    Table,
    divide,
    finding,
    first_positive,
    global_batch,
    key,
    known,
    near,
    number,
    size,
    value,
    workers_text,
)


def steps_of_other_workers(table: Table) -> Iterator[Finding | None]:
    """Find steps that fit another number of workers, or epochs that saw too many or too few images."""
    steps = "steps_per_epoch" if "steps_per_epoch" in table.columns else "steps"
    counted = [row for row in table.having(steps, "batch_size") if row["batch_size"] > 0 and row[steps] > 0]
    of_one = {key(row, table.config): row[steps] * row["batch_size"] for row in counted if size(row) == 1}
    same = len({row[steps] for row in counted}) == 1 and len({size(row) for row in counted}) > 1
    # A benchmark with a fixed number of steps, or a global batch in a column that does not say so.
    fixed = same and not {"images", "epochs", "epoch_seconds", *QUALITY} & table.columns
    global_held = same and table.reading and "local" not in table.columns
    for row in counted:
        stated = value(row, "images") * (1.0 if steps == "steps_per_epoch" else value(row, "epochs"))
        images = first_positive(stated, of_one.get(key(row, table.config), math.nan))
        last = divide(global_batch(row), value(row, "images")) if stated > 0 else 0.0  # That step may be a partial one.
        batches = divide(images, row["batch_size"])
        if not (size(row) > 0 and batches > 0) or fixed or global_held:
            continue
        workers = divide(batches, row[steps])
        whole = workers > 0.97 and near(workers, round(workers), 0.03)
        ran = f"so {workers:.0f} workers ran" if whole else "which is not a number of workers"
        yield None if near(row[steps] * size(row), batches, max(0.02, last)) else finding(
            "steps of other workers", f"{number(row[steps])} steps with {workers_text(row)}: {number(images)} images "
            f"are {number(batches)} batches of {number(row['batch_size'])}, and {number(batches)} / "
            f"{number(row[steps])} = {workers:.2f}, {ran} (expected {batches / size(row):,.0f} steps)", row)


def impossible_layout(table: Table) -> Iterator[Finding | None]:
    """Find more nodes than workers, and numbers of workers that contradict each other."""
    for row in table.having("size", "nodes"):
        count = row["nodes"] * value(row, "processes_per_node")
        yield None
        if row["nodes"] > row["size"]:
            yield finding("impossible layout", f"{workers_text(row)} cannot be on {number(row['nodes'])} nodes; "
                          "hvd.size() is all workers, not those of a node", row)
        elif count > 0 and count != row["size"]:
            yield finding("impossible layout", f"{number(row['nodes'])} nodes x {number(row['processes_per_node'])} "
                          f"are {number(count)} workers, not {number(row['size'])}", row)


def other_layout_than_asked(table: Table) -> Iterator[Finding | None]:
    """Find records whose workers, nodes, threads or backend are not those that were requested."""
    rule = "other layout than asked"
    for row in table.rows:
        yield None
        # The names that `labs run` and `labs sweep` give to runs.
        named = re.match(r"(?:\d{8}-\d{6}|sweep)-w(\d+)(?:-n(\d+))?", row["run"])
        if named and int(named[1]) != row["size"]:
            yield finding(rule, f"started as {named[1]} workers, but {workers_text(row)} ran: were they started "
                          "separately?", row)
        if named and named[2] and int(named[2]) != row["nodes"]:
            yield finding(rule, f"started for {named[2]} nodes, but ran on {number(row['nodes'])}", row)
        if 0 < value(row, "asked_threads") != row.get("threads"):
            yield finding(rule, f"{number(row['asked_threads'])} threads requested, {row.get('threads')} used", row)
        requested, used = str(row.get("asked_backend", "")).lower(), str(row.get("backend", "")).lower()
        if {requested, used} == {"mpi", "gloo"}:
            yield finding(rule, f"backend {requested} requested, {used} used", row)


def wrong_global_batch(table: Table) -> Iterator[Finding | None]:
    """Find a global batch that is not batch x workers."""
    for row in table.having("global_batch_size", "batch_size"):
        right = row["batch_size"] * size(row)
        if row["global_batch_size"] and right > 0:
            yield finding("wrong global batch", f"{number(row['global_batch_size'])} is not "
                          f"{number(row['batch_size'])} x {workers_text(row)} = {number(right)}", row
                          ) if row["global_batch_size"] != right else None


def missing_workers(table: Table) -> Iterator[Finding | None]:
    """Find rows without a number of workers, in a table where other rows have one."""
    figures = [name for name in ("images_per_sec", *TIMES, "speedup") if name in table.columns]
    for row in table.rows if table.having("size") else ():
        if not known(row.get("size")) and any(known(row.get(name)) for name in figures):
            yield finding("missing workers", "the number of workers is missing: no speedup follows from this row", row)
