"""Rules about times and throughputs: values that no clock can have measured."""

from __future__ import annotations

import itertools
import math
import operator
import re
from collections.abc import Iterator

from labs.lint.table import (
    TIMES,
    Finding,
    Row,
    Table,
    base_size,
    configurations,
    divide,
    families,
    finding,
    grouped,
    key,
    known,
    median_throughput,
    near,
    number,
    rounding_share,
    size,
    value,
    workers_text,
)
from labs.measure import ledger_columns
from labs.results import noise


def slower_than_in_turns(table: Table) -> Iterator[Finding | None]:
    """Find workers so slow together that they would have been faster one after the other."""
    for by, family in families(table):
        for fewer, more in itertools.pairwise(sorted(family)):
            times = divide(median_throughput(family[fewer], by), median_throughput(family[more], by))
            row = family[more][0]
            waits = [divide(value(row, "communication_seconds"), value(row, "epoch_seconds")) for row in family[more]]
            if more[0] > fewer[0] and not max(waits) > 0.5:  # Above, the table itself shows that they waited.
                yield finding("slower than in turns", f"{workers_text(row)} took {times:.3g} times as long as "
                              f"{number(fewer[0])}: they would have been faster one after the other; too many "
                              "threads on the cores, a slow link, or a busy machine? Measure again", row
                              ) if times > 1.1 * more[0] / fewer[0] else None


def uneven_epochs(table: Table) -> Iterator[Finding | None]:
    """Find runs that were disturbed, by `noise.disturbance`: their epochs differ too much."""
    for row in table.rows:
        if len(row.get("clocks", ())) > 2:
            yield _uneven(row["disturbed"], row)
    by = next((name for name in ("epoch_seconds", "train_seconds", "total_seconds") if table.having("epoch", name)), "")
    for run in _runs(table.having("epoch", by) if by else [], table):
        later = [row for row in run if row["epoch"] > run[0]["epoch"] or run[0]["epoch"] > 1]
        clocks = [row[by] for row in later]
        # Times that grow are the time since the start.
        growing = by != "epoch_seconds" and all(a[by] < b[by] for a, b in itertools.pairwise(run))
        if len(later) > 1 and min(clocks) > 0 and not growing:
            yield _uneven(noise.uneven(clocks), max(later, key=lambda row: row[by]))


def _runs(rows: list[Row], table: Table) -> Iterator[list[Row]]:
    """Yield the rows of each run: successive rows of one configuration whose epochs increase."""
    run: list[Row] = []
    for row in rows:
        if run and (row["epoch"] <= run[-1]["epoch"]
                    or key(row, ("size", *table.config)) != key(run[-1], ("size", *table.config))):
            yield run
            run = []
        run.append(row)
    yield run


def _uneven(clause: str, row: Row) -> Finding | None:
    return finding("uneven epochs", f"{clause}, the first left out: was the machine busy? Measure again", row
                   ) if clause else None


def identical_clocks(table: Table) -> Iterator[Finding | None]:
    """Find different runs with the same times to the last digit: copied, not measured."""
    seen: dict[tuple, Row] = {}
    for row in (row for row in table.rows if _clock(row)):
        yield _copy(row, seen[_clock(row)]) if _clock(row) in seen else None
        seen.setdefault(_clock(row), row)
    for by in ("epoch_seconds", "train_seconds", "total_seconds", "images_per_sec"):
        rows = [] if "epoch" in table.columns else [
            row for row in table.having(by) if row[by] > 0 and row[by] != round(row[by]) and "rounding" in row]
        for first, *others in grouped(rows, operator.itemgetter(by)):
            others = [row for row in others if _another_run(first, row)]
            digits = math.log10(0.5 / rounding_share(first, by)) if rounding_share(first, by) > 0 else 0.0
            if others and digits > (4 if len(others) == 1 else 3):  # Fewer digits coincide by chance.
                yield finding("identical clocks", f"{by.replace('_', ' ')} {first[by]:.10g} in {len(others) + 1} runs, "
                              "to the last digit: copied, not measured", first, *others)


def _another_run(row: Row, other: Row) -> bool:
    """Return whether two rows say that they are different runs."""
    pairs = [(row.get(name), other.get(name)) for name in ("size", "seed")]
    return any(known(a) and known(b) and a != b for a, b in pairs)


def copied(earlier: list[Row], rows: list[Row]) -> list[Finding]:
    """Return a finding for each record with the times of a record in an earlier results folder."""
    seen = {_clock(row): row for row in reversed(earlier)}
    return [_copy(row, seen[_clock(row)]) for row in rows if _clock(row) and _clock(row) in seen]


def _copy(row: Row, other: Row) -> Finding:
    return finding("identical clocks", f"its {len(row['clocks'])} epochs took the same times as those of "
                   f"{other['where']}, to the last digit: copied, not measured", row)


def _clock(row: Row) -> tuple[float, ...]:
    """Return the seconds of a record's epochs; nothing if they are round, or those of the best trial of a search."""
    if row.get("chosen"):
        return ()
    seconds = tuple(seconds for seconds, _ in row.get("clocks", ()))
    return seconds if any(second != round(second, 3) for second in seconds) else ()


MODELS = {"resnet50": 219.0, "vgg16": 154.0, "resnet152": 91.8}
"""Images per second of one P100, from TensorFlow's benchmarks page. The ratios hold roughly on other GPUs."""


def input_bound_baseline(table: Table) -> Iterator[Finding | None]:
    """Find very different models with nearly one throughput on one worker: the input pipeline was measured."""
    rows = [row | {"usual": MODELS[name]} for row in table.having("model", "images_per_sec")
            if (name := re.sub(r"[\W_]", "", str(row["model"]).lower())) in MODELS and size(row) == base_size(row)]
    groups = configurations(table, rows, without=("model", "processes_per_node"))
    for a, b in itertools.chain.from_iterable(itertools.combinations(group, 2) for group in groups):
        if not near(a["usual"], b["usual"], 0.3):
            yield finding("input-bound baseline", f"{a['model']} {number(a['images_per_sec'])} and {b['model']} "
                          f"{number(b['images_per_sec'])} images/s, where one P100 trains them at {number(a['usual'])} "
                          f"and {number(b['usual'])}: the input was the limit, and this is no base for a speedup; "
                          "run synthetic data as the control", a, b
                          ) if near(a["images_per_sec"], b["images_per_sec"], 0.1) else None


def more_workers_longer(table: Table) -> Iterator[Finding | None]:
    """Find the largest number of workers if it took longer than a row without a number of workers."""
    timed = table.having("total_seconds") if "size" in table.columns else []
    most = max((size(row) for row in timed if size(row) > 1), default=math.nan)
    unknown = [row for row in timed if math.isnan(size(row))]
    for row, other in itertools.product([row for row in timed if size(row) == most], unknown):
        yield finding("more workers, longer", f"{workers_text(row)} took {number(row['total_seconds'])} s, longer than "
                      f"the {number(other['total_seconds'])} s of line {other['row']}: start-up and input dominate so "
                      "short a run; compare seconds per epoch, the first left out", row
                      ) if other["total_seconds"] < row["total_seconds"] else None


PARTS = ("input_seconds", "compute_seconds", "communication_seconds", "start_seconds", "validation_seconds",
         "other_seconds")
"""Parts of an epoch, in the order in which a message lists them."""


def parts_that_do_not_sum(table: Table) -> Iterator[Finding | None]:
    """Find parts of an epoch whose sum is not the whole."""
    ledger = ledger_columns.WALL, ledger_columns.PREFIX
    for whole, prefix in (("epoch_seconds", ""), ledger):
        timed = table.having(whole, f"{prefix}compute_seconds", f"{prefix}communication_seconds")
        shares = [divide(value(row, f"{prefix}compute_seconds"), row[whole]) for row in timed]
        if max(shares, default=0) < 0.05:  # The parts of a step beside the whole of an epoch.
            continue
        for row in (row for row in timed if row[whole] > 0):
            parts = {name: value(row, prefix + name) for name in PARTS if not math.isnan(value(row, prefix + name))}
            missing = row[whole] - sum(parts.values())
            yield None
            if abs(missing) > 0.05 * row[whole]:
                terms = " + ".join(f"{name.removesuffix('_seconds')} {number(part)}" for name, part in parts.items())
                yield finding("parts that do not sum", f"{terms} = {number(row[whole] - missing)} s of "
                              f"{number(row[whole])} s: {number(abs(missing))} s ({abs(missing) / row[whole]:.0%}) are "
                              f"{'not accounted for; show input and the rest' if missing > 0 else 'too many'}", row)
            elif parts.get("other_seconds", 0) < -0.15 * row[whole]:  # Nearer 0: the error of the measurements.
                yield finding("parts that do not sum", f"other is {number(parts['other_seconds'])} s of "
                              f"{number(row[whole])} s: the parts were measured slower than the whole; repeat on an "
                              "idle machine", row)


def rate_against_time(table: Table) -> Iterator[Finding | None]:
    """Find images/s x seconds per epoch that are not the images of an epoch."""
    for row in table.having("images_per_sec", "epoch_seconds", "images"):
        seen = row["images_per_sec"] * row["epoch_seconds"]
        ratio = divide(max(seen, row["images"]), min(seen, row["images"]))
        if ratio > 0:  # An epoch's seconds may include its validation, and a throughput may leave out the first steps.
            yield finding("rate against time", f"{number(row['images_per_sec'])} images/s x "
                          f"{number(row['epoch_seconds'])} s are {number(seen)} images, not {number(row['images'])}: "
                          "is one of them of a single worker, or of another run?", row) if ratio > 1.5 else None


def impossible_figures(table: Table) -> Iterator[Finding | None]:
    """Find times, throughputs and shares that no run can have."""
    for name in ("images_per_sec", *TIMES, ledger_columns.WALL, "speedup", "scaling_efficiency", "size"):
        for row in table.having(name):
            yield finding("impossible figure", f"{name} {number(row[name])} is not above 0", row
                          ) if row[name] <= 0 else None
    for name in sorted(name for name in table.columns if name.endswith("accuracy") or name == "utilization"):
        for row in table.having(name):
            yield finding("impossible figure", f"{name} {number(row[name])} is not between 0 and 1", row
                          ) if not 0 <= row[name] <= 1 else None
