"""Findings: what is implausible, where, and why."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable

from labs.course.plausibility.table import Row


@dataclasses.dataclass(frozen=True)
class Finding:
    """A figure that cannot be right, or a statement that the figures do not support."""

    where: str
    """File, or lab/run."""
    rows: tuple[int, ...]
    """Lines of the file; empty for a record."""
    rule: str
    text: str
    """The figures, and what they should be."""

    def __str__(self) -> str:
        lines = f", line{'s' * (len(self.rows) > 1)} {', '.join(map(str, self.rows))}" if self.rows else ""
        return f"{self.where}{lines}: {self.rule}: {self.text}"


def finding(rule: str, text: str, *rows: Row) -> Finding:
    """Return what a rule found in some rows."""
    return Finding(rows[0]["where"], tuple(row["row"] for row in rows if row["row"]), rule, text)


def brief(findings: Iterable[Finding]) -> list[str]:
    """Return a line per rule: the first finding in full, and where the others are."""
    rules: dict[str, list[Finding]] = defaultdict(list)
    for each in findings:
        rules[each.rule].append(each)
    lines = []
    for first, *others in rules.values():
        where = [", ".join(map(str, other.rows)) or other.where for other in others]
        more = f" and {len(where) - 9} more" if len(where) > 10 else ""
        likewise = f" (likewise {'lines ' if first.rows else ''}{', '.join(where[:9] if more else where)}{more})"
        lines.append(str(first) + likewise * bool(others))
    return lines
