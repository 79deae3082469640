"""The rules of `labs lint`: which apply to typed tables, which to records.

A rule is a function that yields one item per comparison: a Finding, or None where the comparison holds. A rule that
yields nothing had nothing to compare. Tables come from `reading.read_csv` and `checker.recorded`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from labs.lint import traffic_rules
from labs.lint.comparison_rules import (
    changed_learning_rate,
    difference_within_noise,
    strong_scaling_that_is_none,
    two_things_changed,
)
from labs.lint.findings import Finding
from labs.lint.layout_rules import (
    impossible_layout,
    missing_workers,
    other_layout_than_asked,
    steps_of_other_workers,
    wrong_global_batch,
)
from labs.lint.speedup_rules import efficiency_above_1, upside_down, wrong_efficiency, wrong_speedup
from labs.lint.table import Table
from labs.lint.timing_rules import (
    identical_clocks,
    impossible_figures,
    input_bound_baseline,
    more_workers_longer,
    parts_that_do_not_sum,
    rate_against_time,
    slower_than_in_turns,
    uneven_epochs,
)

Rule = Callable[[Table], Iterator[Finding | None]]


def judge(table: Table, rules: Iterable[Rule]) -> list[Finding]:
    """Return what the rules find in a table, by row."""
    return apply(table, rules)[0]


def apply(table: Table, rules: Iterable[Rule]) -> tuple[list[Finding], list[str]]:
    """Return what the rules find in a table, by row, and the names of those that had something to compare."""
    found: list[Finding] = []
    applied = []
    for rule in rules:
        compared = list(rule(table))
        found += [finding for finding in compared if finding]
        applied += [rule.__name__.replace("_", " ")] * bool(compared)
    return sorted(found, key=lambda finding: (finding.where, finding.rows)), applied


BOTH: tuple[Rule, ...] = (
    efficiency_above_1, input_bound_baseline, steps_of_other_workers, impossible_layout, wrong_global_batch,
    changed_learning_rate, parts_that_do_not_sum, slower_than_in_turns, uneven_epochs, identical_clocks,
    traffic_rules.bandwidth_above_the_machines, impossible_figures,
)


TYPED: tuple[Rule, ...] = (
    *BOTH, wrong_speedup, wrong_efficiency, upside_down, rate_against_time, more_workers_longer, missing_workers,
    two_things_changed, strong_scaling_that_is_none, difference_within_noise, *traffic_rules.RULES,
)
"""Rules for a table that somebody typed."""


RECORDED: tuple[Rule, ...] = (*BOTH, other_layout_than_asked)
"""Rules for records: what a run computed itself needs no check of its arithmetic."""
