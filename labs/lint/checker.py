"""Plausibility checks of a results folder or of tables typed by hand, row by row.

    labs lint                     the results folder
    labs lint RESULTS FILE.csv    another results folder, and a table typed by hand

`rules.py` lists the rules, which are in the modules `*_rules.py`. `reading.py` reads tables.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

from labs.lint import rules, tables, timing_rules
from labs.lint.table import Finding, Row, Table
from labs.results import noise, records
from labs.run.errors import LabError


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What lint says about one path."""

    where: str
    reading: str
    """How each column was read, and what was not used; empty for records."""
    findings: list[Finding]
    applied: list[str]
    """The rules that had something to compare."""

    def __str__(self) -> str:
        """Return the line on what was read and what was checked."""
        checked = f"checked {', '.join(self.applied)}"
        return f"{self.where}: {'; '.join(part for part in (self.reading, checked) if part)}"


def verdicts(paths: list[Path]) -> Iterator[Verdict | LabError]:
    """Yield a verdict per path, or the LabError that says why there is none."""
    earlier: list[Row] = []  # The records of the folders before, to find copies across students.
    for path in reversed({os.path.realpath(path): path for path in reversed(paths)}.values()):
        try:
            if path.is_dir():
                table = _read_folder(path)
                verdict = _judged(f"{path}: {len(table.rows):,} record{'s' * (len(table.rows) != 1)}", table)
                rows = [row | {"where": f"{path}/{row['where']}"} for row in table.rows]
                yield dataclasses.replace(verdict, findings=[*verdict.findings, *timing_rules.copied(earlier, rows)])
                earlier += rows
            else:
                yield _judged(path.name, tables.read(path))
        except LabError as problem:
            yield problem


def _judged(where: str, table: Table) -> Verdict:
    """Return the verdict on a table; `where` names it.

    Raises:
        LabError: No rule had anything to compare.
    """
    findings, applied = rules.apply(table, rules.TYPED if table.reading else rules.RECORDED)
    if not applied:
        raise LabError(f"{where}: nothing could be checked: {table.reading}; a speedup needs workers and times or "
                       "images/s, a bandwidth needs bytes and seconds")
    return Verdict(where, table.reading, findings, applied)


def check_csv(path: Path) -> list[Finding]:
    """Return what is implausible in a table typed by hand.

    Raises:
        LabError: The table cannot be read, or nothing in it can be checked.
    """
    return _judged(path.name, tables.read(path)).findings


def _read_folder(root: Path) -> Table:
    runs = records.read_all(root=root)
    if not runs:
        raise LabError(f"{root} holds no record; `labs run lab10_caltech --workers 2` makes one")
    return recorded(runs)


def recorded(runs: list[records.Record]) -> Table:
    """Return records as the rules need them: `records.flat`, with what the history and the machine add."""
    rows, computed_on = [], records.computed_on(runs)
    for index, record in enumerate(runs):
        last = record["history"][-1] if record["history"] else {}
        about: Row = {
            "row": 0, "where": f"{record['lab']}/{record['run']}", "clocks": _clocks(record),
            "disturbed": noise.disturbance(record), "shared_cores": noise.shared_cores(record),
            "chosen": "trials" in record.get("tables", {}), "images": last.get("images"),
            "steps_per_epoch": last.get("steps"), "bandwidth": record["metrics"].get("busbw_gb_per_sec"),
            "gpus": record["machine"].get("gpus"), "machine_cores": record["machine"].get("cores"),
            "measured": record["timings"] | record["metrics"] | last,
        }
        rows.append(records.flat(record) | about | {name: values[index] for name, values in computed_on.items()})
    config = {name: None for record in runs for name in records.settings(record) if name != "seed"} | computed_on
    return Table(rows, frozenset().union(*rows), ("lab", *config))


def _clocks(record: records.Record) -> list[tuple[float, float]]:
    """Return the seconds and steps of each epoch; nothing for an elastic run, whose number of workers changes."""
    if "events" in record.get("tables", {}):
        return []
    rows = ((row.get("train_seconds"), row.get("steps", 1)) for row in record["history"])
    return [(seconds, steps) for seconds, steps in rows
            if isinstance(seconds, int | float) and isinstance(steps, int | float) and steps > 0]
