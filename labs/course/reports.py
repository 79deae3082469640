"""Figures of the course reports, from `data/reference`, for comparison with a student's own."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING

from labs.lint import checker, table
from labs.lint.tables import read
from labs.run.errors import LabError
from labs.run.paths import ROOT

if TYPE_CHECKING:
    import pandas as pd

ALSO = {
    "lab03_lr_scaling": ("lab04_large_batch_accuracy",),
    "lab05_allreduce": ("lab04_speedup", "lab07_backends", "lab07_transported_bytes"),
    "lab06_memory": ("lab07_backends",),
    "lab11_multinode": ("lab02_mnist_accuracy", "lab08_throughput", "lab08_speedup"),
}
"""Further tables of a lab, which are named after another lab."""


CODE = r"\b[MCTAF]\d(?:\.\d)?\b"
"""The code of a question of the course reports, such as C3.2."""


@functools.cache
def questions() -> dict[str, str]:
    """Return the meaning of each code, from the glossary."""
    text = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    return dict(re.findall(rf"^\| ({CODE}) \| (.+?) \|", text, re.MULTILINE))


def paths(lab: str) -> list[Path]:
    """Return the files of a lab's tables in the course reports."""
    folder = ROOT / "data/reference"
    return [*sorted(folder.glob(f"{lab[:5]}_*.csv")), *(folder / f"{name}.csv" for name in ALSO.get(lab, ()))]


def speedups(lab: str, by: list[str]) -> pd.DataFrame | None:
    """Return the speedups computed from a course report's times: columns size, speedup, efficiency, some of `by`.

    Implausible rows are left out. Return None if no table has the columns `by`.
    """
    import pandas as pd

    rows, count = [], 0
    for path in paths(lab):
        try:
            results, bad = read(path), _lines(path)
        except LabError:
            continue
        for measure, family in table.families(results):
            count += 1
            base = table.throughput(family[min(family)][0], measure)
            if min(family)[0] != table.base_size(family[min(family)][0]):
                continue
            for row in (row for members in family.values() for row in members if row["row"] not in bad):
                rows.append(row | {"speedup": table.throughput(row, measure) / base, "size": table.size(row)})
    common = [name for name in by if all(table.known(row.get(name)) for row in rows)]
    if not rows or (count > 1 and not common):
        return None
    frame = pd.DataFrame(rows)[[*common, "size", "speedup"]]
    return frame.assign(scaling_efficiency=frame["speedup"] / frame["size"])


def _lines(path: Path) -> set[int]:
    """Return the lines whose steps belong to another number of workers."""
    wrong = [finding for finding in checker.check_csv(path) if finding.rule == "steps of other workers"]
    return {line for finding in wrong for line in finding.rows}
