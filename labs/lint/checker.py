"""Plausibility checks of results: what cannot be right in a results folder or a typed table, row by row.

    labs lint                     the results folder
    labs lint RESULTS FILE.csv    another results folder, and tables that were typed

`rules.py` lists the rules, which are in `speedup_rules.py`, `timing_rules.py`, `layout_rules.py`,
`comparison_rules.py` and `traffic_rules.py`. `reading.py` reads tables.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

from labs.lint.findings import Finding
from labs.lint.reading import read_csv
from labs.lint.table import Row, Table
from labs.results import records
from labs.run.errors import LabError


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What lint says of one path."""

    where: str
    reading: str
    """What was read as what, and what was not used; empty for records."""
    findings: list[Finding]
    applied: list[str]
    """The rules that had something to compare."""

    def __str__(self) -> str:
        """Return the line on what was read and what was checked."""
        checked = f"checked {', '.join(self.applied)}"
        return f"{self.where}: {'; '.join(part for part in (self.reading, checked) if part)}"


def check(paths: list[Path]) -> Iterator[Finding | LabError]:
    """Yield what is wrong in results folders and tables; a path that cannot be checked yields its LabError.

    Args:
        paths: Folders of results, and CSV files.
    """
    for verdict in verdicts(paths):
        if isinstance(verdict, LabError):
            yield verdict
        else:
            yield from verdict.findings


def verdicts(paths: list[Path]) -> Iterator[Verdict | LabError]:
    """Yield a verdict per path, or the LabError that says why there is none."""
    from labs.lint import timing_rules

    earlier: list[Row] = []  # The records of the folders before, to find copies across students.
    for path in reversed({os.path.realpath(path): path for path in reversed(paths)}.values()):
        try:
            if path.is_dir():
                table = _store(path)
                verdict = _judged(f"{path}: {len(table.rows):,} record{'s' * (len(table.rows) != 1)}", table)
                rows = [row | {"where": f"{path}/{row['where']}"} for row in table.rows]
                yield dataclasses.replace(verdict, findings=[*verdict.findings, *timing_rules.copied(earlier, rows)])
                earlier += rows
            else:
                yield _judged(path.name, read_csv(path))
        except LabError as problem:
            yield problem


def _judged(where: str, table: Table) -> Verdict:
    """Return the verdict on a table; `where` says what it is.

    Raises:
        LabError: No rule had anything to compare.
    """
    from labs.lint import rules

    found, applied = rules.apply(table, rules.TYPED if table.reading else rules.RECORDED)
    if not applied:
        raise LabError(f"{where}: nothing could be checked: {table.reading}; a speedup needs workers and times or "
                       "images/s, a bandwidth needs bytes and seconds")
    return Verdict(where, table.reading, found, applied)


def check_csv(path: Path) -> list[Finding]:
    """Return what is wrong in a table that somebody typed.

    Raises:
        LabError: It cannot be read, or nothing in it can be checked.
    """
    return _judged(path.name, read_csv(path)).findings


def check_store(root: Path) -> list[Finding]:
    """Return what is wrong in the records of a results folder; those that are no records are named and left out."""
    return _judged(str(root), _store(root)).findings


def _store(root: Path) -> Table:
    runs = records.read_all(root=root)
    if not runs:
        raise LabError(f"{root} holds no record; `labs run lab10_caltech --workers 2` makes one")
    return recorded(runs)


def recorded(found: list[records.Record]) -> Table:
    """Return records as the rules want them: as `records.flat`, and what history and machine know."""
    rows, apart = [], records.computed_on(found)
    for place, record in enumerate(found):
        last = record["history"][-1] if record["history"] else {}
        about: Row = {"row": 0, "where": f"{record['lab']}/{record['run']}", "clocks": _clocks(record)}
        about |= {"chosen": "trials" in record.get("tables", {})}
        about |= {"images": last.get("images"), "steps_per_epoch": last.get("steps")}
        about |= {"bandwidth": record["metrics"].get("busbw_gb_per_sec"), "gpus": record["machine"].get("gpus")}
        rows.append(records.flat(record) | about | {name: values[place] for name, values in apart.items()})
    config = {name: None for record in found for name in records.settings(record) if name != "seed"} | apart
    return Table(rows, frozenset().union(*rows), ("lab", *config))


def _clocks(record: records.Record) -> list[tuple[float, float]]:
    """Return seconds and steps of each epoch; none of an elastic run, whose epochs have other workers each."""
    if "events" in record.get("tables", {}):
        return []
    rows = ((row.get("train_seconds"), row.get("steps", 1)) for row in record["history"])
    return [(seconds, steps) for seconds, steps in rows
            if isinstance(seconds, int | float) and isinstance(steps, int | float) and steps > 0]
