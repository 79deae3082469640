"""Rules about speedups and scaling efficiencies, stated or computed from times."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Hashable, Iterator

import numpy as np

from labs.lint.table import (
    Family,
    Finding,
    Row,
    Table,
    base_size,
    divide,
    families,
    finding,
    ideal_speedup,
    key,
    median_throughput,
    near,
    number,
    rounding_share,
    size,
    throughput,
    timed_column,
    timed_columns,
    value,
    workers_text,
)
from labs.results import noise, scaling

CLOSE = 20
"""How many rows are searched for the one that a wrong speedup was divided by."""

NOISE = 0.1
"""How far apart two figures of single runs may be by chance."""

CONTROL = ("the base is slow for another reason (input?), or another number of workers ran than the row says; "
           "run synthetic data as the control")

DEVICES = {"device", "gpu", "gpus", "hardware", "machine", "accelerator", "gpu_type", "gpu_model", "platform", "system"}
"""Columns that tell a CPU from a GPU; a speedup may be relative to the other."""


def efficiency_above_1(table: Table) -> Iterator[Finding | None]:
    """Find n workers that are more than n times as fast as one."""
    rule = "efficiency above 1"
    several = [(by, family, workers) for by, family in families(table)
               for workers in sorted(set(family) - {min(family)})]
    for by, family, workers in several:
        base, rows, n = family[min(family)], family[workers], workers[0] / min(family)[0]
        speedup = noise.compare(_by_seed(rows, by), _by_seed(base, by), ratio=True, comparisons=len(several))
        ratio = speedup.value
        above = ratio > (1 + scaling.ROUNDED + _loose(rows[0], base[0], by)) * n and not speedup.low <= n
        yield finding(rule, f"{number(ratio)} times the throughput of {workers_text(base[0])} with "
                      f"{workers_text(rows[0])}: {_cause(ratio / n)}", *rows) if above and n > 1 else None
    bases = _smallest_rows(table)
    for row in table.having("speedup"):
        most = _most(row, bases[key(row, _setting(table))], table)
        if most > 0:
            unit = "nodes" if math.isnan(value(row, "size")) else "workers"
            efficiency = row["speedup"] / most
            yield finding(rule, f"speedup {number(row['speedup'])} with {unit} {number(ideal_speedup(row))}: "
                          f"{_cause(efficiency)}", row) if efficiency > 1 + scaling.ROUNDED else None
    for row in table.having("scaling_efficiency"):
        efficiency = row["scaling_efficiency"]
        yield finding(rule, f"scaling {_cause(efficiency)}", row) if efficiency > 1 + scaling.ROUNDED else None


def _by_seed(rows: list[Row], by: str) -> dict[Hashable, float]:
    """Return throughputs by seed, or by row if seeds repeat, without the disturbed runs where there are others."""
    rows = [row for row in rows if not row.get("disturbed")] or rows
    seeds = {row.get("seed") for row in rows} - {None}
    return {row["seed"] if len(seeds) == len(rows) else object(): throughput(row, by) for row in rows}


def _cause(efficiency: float) -> str:
    """Return an efficiency above 1 with its probable cause."""
    noise = "single runs vary as much, and caches help; repeat both"
    return f"efficiency {efficiency:.2f}; {CONTROL if efficiency > 1 + NOISE else noise}"


def _smallest_rows(table: Table) -> dict[tuple, Row]:
    """Return the row with the fewest workers of each configuration that has a speedup."""
    smallest: dict[tuple, Row] = defaultdict(dict)
    for row in sorted((row for row in table.having("speedup") if ideal_speedup(row) > 0), key=ideal_speedup):
        smallest.setdefault(key(row, _setting(table)), row)
    return smallest


def _setting(table: Table) -> list[str]:
    """Return the columns whose values must agree for one speedup: all but the batch and the layout."""
    return [name for name in table.config if name not in ("batch_size", "global_batch_size", "processes_per_node")]


def _most(row: Row, base: Row, table: Table) -> float:
    """Return the speedup of a row at efficiency 1, relative to the stated speedup of its configuration's smallest row.

    Four nodes of 8 GPUs may be compared with one node, and GPUs with a CPU.
    """
    first, stated = (ideal_speedup(base), value(base, "speedup")) if base else (math.nan, math.nan)
    if first > 1 and near(stated, 1.0):
        return ideal_speedup(row) / first
    against_cpu = first == 1 and stated > 1 + NOISE and DEVICES & set(table.config)
    return ideal_speedup(row) * (stated if against_cpu else 1.0)


def _loose(row: Row, other: Row, by: str) -> float:
    """Return how far the ratio of two rows' throughputs may be off because their figures were rounded, as a share."""
    return rounding_share(row, by) + rounding_share(other, by)


def wrong_speedup(table: Table) -> Iterator[Finding | None]:
    """Find speedups that are not throughput(n) / throughput(1) of one configuration, and say what they are instead."""
    if "speedup" not in table.columns:
        return
    best = timed_column(table)
    everything = [row for row in table.rows if throughput(row, best) > 0]
    right_rows = set().union(*(_fitting(table, by) for by in timed_columns(table)))
    stated_rows = {row["id"] for row in table.having("speedup")}
    for by in sorted({name for row in table.rows for name in row if name.startswith("unread_")}):
        if (fitting := _fitting(table, by)) >= stated_rows:
            right_rows |= fitting
    for by, family in families(table):
        one, scale, base = min(family)[0], _scale(family, table, by), median_throughput(family[min(family)], by)
        for row in itertools.chain.from_iterable(family.values() if scale > 0 else ()):
            stated, right = value(row, "speedup"), scale * throughput(row, by) / base
            if math.isnan(stated):
                continue
            slower = "; it is slower than its base, and called faster" if right < 0.95 and stated > 1 else ""
            yield None if row["id"] in right_rows else finding(
                "wrong speedup", f"{number(stated)} is not throughput({number(size(row))}) / throughput({number(one)}) "
                f"= {right:.2f} (efficiency {right * base_size(row) / size(row):.2f}): "
                f"{_instead(stated, row, base, family, everything, by)}{slower}", row)


def _scale(family: Family, table: Table, by: str) -> float:
    """Return the speedup of a family's base: 1, or the stated one if the base itself is compared with another row.

    The latter holds if the base has several workers, or runs on another device than the row whose speedup is 1.
    """
    rows = family[min(family)]
    stated = [value(row, "speedup") for row in rows if value(row, "speedup") > 0]
    if min(family)[0] != base_size(rows[0]):
        return float(np.median(stated)) if stated else math.nan
    same = [name for name in table.config if name not in DEVICES]
    devices = [name for name in table.config if name in DEVICES]
    for other in table.having("speedup") if devices and stated else ():
        another_device = key(other, same) == key(rows[0], same) and key(other, devices) != key(rows[0], devices)
        ratio = divide(throughput(rows[0], by), throughput(other, by))
        if another_device and near(other["speedup"], 1.0) and _fits(
                rows[0], "speedup", ratio, _loose(rows[0], other, by)):
            return stated[0]
    return 1.0


def _fitting(table: Table, by: str) -> set[int]:
    """Return the rows whose speedup follows from the column `by`, except for rounding."""
    fitting: set[int] = set()
    for _, family in families(table, by):
        scale, first = _scale(family, table, by), min(family)
        bases = [throughput(row, by) for row in family[first]]
        rows = [row for members in family.values() for row in members if value(row, "speedup") > 0]
        for base in {float(np.median(bases)), float(np.mean(bases)), *bases[:CLOSE]}:
            rights = {row["id"]: scale * throughput(row, by) / base for row in rows}
            loose = {row["id"]: _loose(row, family[first][0], by) for row in rows}
            fitting |= {row["id"] for row in rows if _fits(row, "speedup", rights[row["id"]], loose[row["id"]])}
            # Data that grow with the workers: each does as much in the same time, and together they do n times as much.
            grown = {row["id"] for row in rows
                     if _fits(row, "speedup", rights[row["id"]] * size(row) / first[0], loose[row["id"]])}
            if rows and by != "images_per_sec" and grown == set(rights) and max(rights.values()) < 1 + NOISE:
                fitting |= grown
    return fitting


def _fits(row: Row, name: str, right: float, loose: float = 0.0) -> bool:
    """Return whether a figure of a row is right except for rounding: its own, or that of its inputs."""
    stated, rounding = value(row, name), row.get("rounding", {}).get(name, 0.0)
    whole = rounding >= 0.5 and stated >= 2 and abs(stated - right) <= 0.5  # Rounded to 2, 3 and so on.
    return whole or abs(stated - right) <= max(0.02 * abs(right), 0.0051, loose * abs(right) + min(rounding, 0.05))


def _instead(stated: float, row: Row, base: float, family: Family, everything: list[Row], by: str) -> str:
    """Say which other ratio of the table a speedup is."""
    members = itertools.islice(itertools.chain.from_iterable(family.values()), CLOSE)
    peers = [other for other in members if other["id"] != row["id"]]
    for ratio, text in itertools.chain(_ratios_within(row, base, peers, by), _ratios_across(row, everything, by)):
        if near(stated, ratio, 0.005) or abs(stated - ratio) < 0.0051:
            return text
    return "no ratio of this table gives it"


def _ratios_within(row: Row, base: float, peers: list[Row], by: str) -> Iterator[tuple[float, str]]:
    """Yield the ratios within one configuration that are mistaken for its speedup."""
    own = throughput(row, by)
    yield 1.0, "every row was used as its own baseline"
    yield base / own, "that is throughput(1) / throughput(n), inverted"
    for other in peers:
        yield throughput(other, by) / base, f"that is the speedup of line {other['row']}, labels swapped"
    for other in peers:
        name = f"line {other['row']} ({workers_text(other)})"
        yield own / throughput(other, by), f"it was divided by {name}, not by one worker"
        yield throughput(other, by) / own, f"inverted, and against {name}, not one worker"
    for a, b in itertools.permutations(peers, 2):
        text = f"that compares line {a['row']} with line {b['row']}, labels swapped"
        yield throughput(a, by) / throughput(b, by), text


def _ratios_across(row: Row, everything: list[Row], by: str) -> Iterator[tuple[float, str]]:
    """Yield the ratios to rows of other configurations, those with the same number of workers first."""
    def distance(other: Row) -> tuple:
        return size(other) != size(row), abs(other["row"] - row["row"])

    close = (other for other in everything if 0 < abs(other["id"] - row["id"]) < CLOSE)
    for other in sorted(close, key=distance):
        name = f"line {other['row']}, {_difference(row, other)}"
        yield throughput(row, by) / throughput(other, by), f"it was divided by {name}"
        yield throughput(other, by) / throughput(row, by), f"inverted, and against {name}"


def _difference(row: Row, other: Row) -> str:
    """Say how two rows' configurations differ."""
    for name in ("batch_size", "global_batch_size", "model", "device", "epochs"):
        if name in row and row[name] != other[name]:
            theirs, own = (number(cell) if isinstance(cell, int | float) else cell for cell in (other[name], row[name]))
            return f"which has {name} {theirs}, not {own}"
    return "another configuration"


def upside_down(table: Table) -> Iterator[Finding | None]:
    """Find speedups below 1 with more workers, where no times show a slow-down."""
    timed = {row["id"] for by in timed_columns(table) for row in table.having(by)}
    for row in table.having("speedup"):
        if ideal_speedup(row) > 1 and row["id"] not in timed and row["speedup"] > 0:
            yield finding("speedup below 1", f"{number(row['speedup'])} with {workers_text(row)}: is it upside down, "
                          f"T(n) / T(1) instead of T(1) / T(n) = {1 / row['speedup']:.2f}? If they were slower, "
                          "show the times", row) if row["speedup"] < 1 - NOISE / 2 else None


def wrong_efficiency(table: Table) -> Iterator[Finding | None]:
    """Find efficiencies that are not speedup / n."""
    bases, stated = _smallest_rows(table), table.having("speedup", "scaling_efficiency")
    for row in stated:
        right = divide(row["speedup"], ideal_speedup(row))
        smallest = bases[key(row, _setting(table))]
        relative = divide(right * ideal_speedup(smallest), value(smallest, "speedup")) if smallest else math.nan
        if right > 0:
            loose = rounding_share(row, "speedup")
            fits = any(_fits(row, "scaling_efficiency", each, loose) for each in (right, relative))
            yield None if fits else finding(
                "wrong efficiency", f"{number(row['scaling_efficiency'])} is not speedup / n = "
                f"{number(row['speedup'])} / {number(ideal_speedup(row))} = {right:.2f}", row)
    checked = {row["id"] for row in stated}
    for by, family in families(table):
        base, first = min(family), family[min(family)]
        for row in itertools.chain.from_iterable(family.values()):
            if row["id"] in checked or not value(row, "scaling_efficiency") > 0:
                continue
            ratio = throughput(row, by) / median_throughput(first, by)
            right = ratio * base[0] / size(row)
            rights = [right, right * value(first[0], "scaling_efficiency")]
            rights += [ratio] * (by != "images_per_sec")  # Data that grow with the workers.
            fits = any(_fits(row, "scaling_efficiency", each, _loose(row, first[0], by)) for each in rights)
            yield None if fits else finding(
                "wrong efficiency", f"{number(row['scaling_efficiency'])} is not throughput(n) / throughput(1) / n = "
                f"{ratio:.3g} / {number(size(row) / base[0])} = {right:.2f}", row)
