"""Rules about settings: how many workers ran and where, what else changed, and whether a difference is noise."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator

from labs.lint.table import (
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
    key,
    known,
    near,
    number,
    size,
    value,
    workers_text,
)
from labs.results import noise


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
        if requested != used and {requested, used} <= {"mpi", "gloo", "nccl"}:
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


def not_strong_scaling(table: Table) -> Iterator[Finding | None]:
    """Find rows called strong scaling whose global batch changes."""
    rows = [row for row in table.having("experiment")
            if "strong" in str(row["experiment"]).lower() and global_batch(row) > 0]
    for first, *later in configurations(table, rows, without=("batch_size", "processes_per_node", "threads")):
        for row in later:
            yield finding("not strong scaling", f"global batch {number(global_batch(row))} against "
                          f"{number(global_batch(first))} in line {first['row']}; strong scaling keeps it constant", row
                          ) if global_batch(row) != global_batch(first) else None


def difference_within_noise(table: Table) -> Iterator[Finding | None]:
    """Find accuracies of single runs that differ by no more than the noise of their test images.

    Applies only if the rows compare accuracies. Next to times, accuracies only show that nothing was lost.
    """
    if "test_accuracy" not in table.columns or {"spread", "seed", "repeats"} & table.columns:
        return
    rows = [row for row in table.having("test_accuracy") if 0 < row["test_accuracy"] < 1]
    for group in configurations(table, rows, ("batch_size",), "learning_rate"):
        timed = all(any(value(row, name) > 0 for name in ("images_per_sec", *TIMES, "speedup")) for row in group)
        rounding = min(row.get("rounding", {}).get("test_accuracy", 0.0) for row in group)
        if len(group) < 2 or timed or rounding > 0.1 * _error(group[0]):  # Rounding has dropped the noisy digits.
            continue
        best = max(group, key=lambda row: row["test_accuracy"])
        alike = [row for row in group
                 if not noise.compare_shares(best["test_accuracy"], row["test_accuracy"], _images(best), _images(row),
                                             comparisons=len(group) - 1).resolved]
        accuracies = ", ".join(number(row["test_accuracy"]) for row in alike)
        yield finding("difference within noise", f"{accuracies}: on {number(_images(best))} test images the standard "
                      f"error of each is {_error(best):.4f}, so the difference may be chance; repeat with several "
                      "seeds, and give mean and interval", *alike) if len({size(row) for row in alike}) > 1 else None


def _images(row: Row) -> int:
    return int(first_positive(value(row, "test_images"), 10_000.0))  # The usual test sets have no more.


def _error(row: Row) -> float:
    return noise.standard_error(row["test_accuracy"], _images(row))


def not_finite(table: Table) -> Iterator[Finding | None]:
    """Find figures of a run that are NaN or infinite."""
    for row in table.rows:
        wrong = [f"{name} {figure}" for name, figure in row["measured"].items()
                 if isinstance(figure, float) and not math.isfinite(figure)]
        yield finding("not finite", f"{', '.join(wrong)}: the training diverged; a lower learning rate or a longer "
                      "warmup helps", row) if wrong else None


def batch_above_the_images(table: Table) -> Iterator[Finding | None]:
    """Find runs whose global batch is larger than the set of training images."""
    for row in table.having("global_batch_size", "images"):
        yield finding("batch above the images", f"a global batch of {number(row['global_batch_size'])} for "
                      f"{number(row['images'])} training images: an epoch is one partial step, so neither speed "
                      "nor accuracy means anything; choose a smaller --batch-size", row
                      ) if row["global_batch_size"] > row["images"] > 0 else None


def not_trained(table: Table) -> Iterator[Finding | None]:
    """Find classifiers that only guess after several epochs: loss ln k and accuracy 1/k for some k classes."""
    for row in table.rows:
        loss, accuracy = (value(row["measured"], name) for name in ("loss", "accuracy"))
        if len(row["clocks"]) > 1 and 0 < accuracy < 0.6 and math.log(2) * 0.97 < loss < 20:
            yield finding("not trained", f"accuracy {number(accuracy)} and loss {number(loss)} after "
                          f"{len(row['clocks'])} epochs are those of a guess among {round(1 / accuracy)} classes: "
                          "blank images, a wrong learning rate, or too few steps to measure more than speed", row
                          ) if 0.8 < accuracy * math.exp(loss) < 1.25 else None


def shared_cores(table: Table) -> Iterator[Finding | None]:
    """Find workers without GPUs that had less than one core each."""
    for row in table.having("local_size", "machine_cores"):
        yield finding("shared cores", f"{row['shared_cores']}: this is not the speed of {number(row['local_size'])} "
                      "workers", row) if row["shared_cores"] else None
