"""Reference runs: records that are committed with the kit, of runs too long or too large for a student's machine.

    labs sweep lab11 --preset paper --keep-reference two-nodes       data/reference_runs/two-nodes/lab11_multinode/...
    reference.read_all("two-nodes", "lab11_multinode")
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from labs.results import records
from labs.run import atomic
from labs.run.errors import LabError
from labs.run.options import check_name
from labs.run.paths import ROOT

FOLDER = ROOT / "data" / "reference_runs"


def keep(runs: Iterable[records.Record], name: str, folder: Path = FOLDER) -> int:
    """Write the records of some runs as reference runs, and return their number; equal names are replaced.

    Raises:
        LabError: The name cannot be a folder's.
    """
    check_name(name)
    runs = list(runs)
    for record in runs:
        content = msgspec.json.format(msgspec.json.encode(record), indent=0).decode()
        atomic.write_text(folder / name / record["lab"] / record["run"] / "record.json", content + "\n")
    return len(runs)


def read_all(name: str, lab: str = "*", folder: Path = FOLDER) -> list[records.Record]:
    """Return the records of a set of reference runs, or those of one lab, oldest first.

    Raises:
        LabError: No set has this name.
    """
    if not (folder / name).is_dir():
        there = ", ".join(sorted(path.name for path in folder.glob("*/"))) or "none"
        raise LabError(f"no reference runs are called {name!r}; there are: {there}")
    return records.read_all(lab, folder / name)
