"""Reference runs: records that are committed with the kit, of runs too long or too large for a student's machine.

`labs sweep lab11 --keep-reference two-nodes` writes data/reference_runs/two-nodes/lab11_multinode.jsonl: a run a line.
"""

import operator
from collections.abc import Iterable
from pathlib import Path

import msgspec

from labs.results import records
from labs.run import atomic
from labs.run.errors import LabError
from labs.run.paths import ROOT

FOLDER = ROOT / "data" / "reference_runs"
START = operator.itemgetter("started", "run")


def add(runs: Iterable[records.Record], name: str, folder: Path = FOLDER) -> int:
    """Write the records of some runs as reference runs, and return their number; equal names are replaced."""
    runs = list(runs)
    for lab in sorted({record["lab"] for record in runs}):
        path = folder / name / f"{lab}.jsonl"
        kept = {record["run"]: record for record in [*_read(path), *runs] if record["lab"] == lab}
        lines = [msgspec.json.encode(record).decode() for record in sorted(kept.values(), key=START)]
        atomic.write_text(path, "\n".join(lines) + "\n")
    return len(runs)


def read_all(name: str, lab: str = "*", folder: Path = FOLDER) -> list[records.Record]:
    """Return the records of a set of reference runs, or those of one lab, oldest first."""
    if name not in names(folder):
        raise LabError(f"no reference runs are called {name!r}; there are: {', '.join(names(folder)) or 'none'}")
    return sorted((record for path in folder.glob(f"{name}/{lab}.jsonl") for record in _read(path)), key=START)


def names(folder: Path = FOLDER) -> list[str]:
    """Return the names of the sets of reference runs."""
    return sorted(path.name for path in folder.glob("*/"))


def _read(path: Path) -> list[records.Record]:
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [records.parse(line, f"{path}, line {number}") for number, line in enumerate(lines, 1)]
