"""The rules of `labs lint`: which apply to typed tables, which to records.

A rule is a function that yields an item per comparison: a Finding, or None if the comparison passes. A rule that
yields nothing had nothing to compare. Tables come from `reading.read_csv` and `checker.recorded`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator

from labs.lint import setting_rules, speedup_rules, timing_rules, traffic_rules
from labs.lint.table import Finding, Row, Table, finding
from labs.results import tolerant
from labs.run.text import short

Rule = Callable[[Table], Iterator[Finding | None]]


def judge(table: Table, rules: Iterable[Rule]) -> list[Finding]:
    """Return what the rules find in a table, by row."""
    return apply(table, rules)[0]


def apply(table: Table, rules: Iterable[Rule]) -> tuple[list[Finding], list[str]]:
    """Return what the rules find in a table, by row, and the names of those that had something to compare."""
    findings: list[Finding] = []
    applied: list[str] = []
    unreadable: dict[str, Finding] = {}
    for rule in rules:
        compared, bad = tolerant.read(functools.partial(_judged, rule, table), table.rows)
        findings += filter(None, compared)
        applied += [rule.__name__.replace("_", " ")] * bool(compared)
        unreadable |= {row["where"]: finding("unreadable", f"{rule.__name__.replace('_', ' ')} was not checked "
                                             f"({type(problem).__name__}: {short(problem, 200)})", row)
                       for row, problem in bad if row["where"] not in unreadable}
    findings += unreadable.values()
    return sorted(findings, key=lambda finding: (finding.where, finding.rows)), applied


def _judged(rule: Rule, table: Table, rows: list[Row]) -> Iterator[Finding | None]:
    return rule(dataclasses.replace(table, rows=rows))


BOTH: tuple[Rule, ...] = (
    speedup_rules.efficiency_above_1, timing_rules.input_bound_baseline, setting_rules.steps_of_other_workers,
    setting_rules.impossible_layout, setting_rules.wrong_global_batch, setting_rules.changed_learning_rate,
    timing_rules.parts_that_do_not_sum, timing_rules.slower_than_in_turns, timing_rules.uneven_epochs,
    timing_rules.identical_clocks, traffic_rules.bandwidth_above_the_machines, timing_rules.impossible_figures,
)

TYPED: tuple[Rule, ...] = (
    *BOTH, speedup_rules.wrong_speedup, speedup_rules.wrong_efficiency, speedup_rules.upside_down,
    timing_rules.rate_against_time, timing_rules.more_workers_longer, setting_rules.missing_workers,
    setting_rules.two_things_changed, setting_rules.not_strong_scaling,
    setting_rules.difference_within_noise, traffic_rules.too_little_communication, traffic_rules.wrong_bandwidth,
    traffic_rules.bytes_by_batch, traffic_rules.bytes_per_step, traffic_rules.input_is_no_traffic,
    traffic_rules.wrong_busbw,
)
"""Rules for a table typed by hand."""

RECORDED: tuple[Rule, ...] = (
    *BOTH, setting_rules.other_layout_than_asked, setting_rules.not_finite, setting_rules.batch_above_the_images,
    setting_rules.not_trained, setting_rules.shared_cores,
)
"""Rules for records. A run computed its own figures, so their arithmetic needs no check."""
