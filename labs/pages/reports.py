"""Figures of the course reports, from `data/reference`, for comparison with a student's own."""

from __future__ import annotations

import csv
import functools
from typing import TYPE_CHECKING

from labs.lint import rules
from labs.lint.tables import families, measured_by, read
from labs.run.errors import LabError
from labs.run.paths import ROOT

if TYPE_CHECKING:
    import pandas as pd

CODE = r"\b[MCTAF]\d(?:\.\d)?\b"
"""The code of a question of the course reports, such as C3.2."""


@functools.cache
def questions() -> dict[str, str]:
    """Return the question of each code, such as C3.2."""
    with (ROOT / "data/reference/questions.csv").open(encoding="utf-8", newline="") as file:
        return {row["code"]: row["question"] for row in csv.DictReader(file)}


def speedups(lab: str, by: list[str]) -> pd.DataFrame | None:
    """Return the speedups computed from a course report's times: columns size, speedup, efficiency, some of `by`.

    Rows whose steps belong to another number of workers are left out. Return None if no table has the columns `by`.
    """
    import pandas as pd

    bases, rows = set(), []
    for path in sorted((ROOT / "data/reference").glob(f"{lab[:5]}_*.csv")):
        try:
            results = read(path)
        except LabError:
            continue
        wrong = [id(row) for _, row in rules.steps_of_other_workers(results)]
        measure = measured_by(results)
        for (base, *_), cell in families(results, measure):
            if 1 in (base.size, base.get("nodes")):
                bases.add(id(base))
                rows += [row | {"speedup": row.throughput(measure) / base.throughput(measure), "size": row.size}
                         for row in cell if id(row) not in wrong]
    common = [name for name in by if all(name in row for row in rows)]
    if len({row["size"] for row in rows}) < 2 or (len(bases) > 1 and not common):
        return None
    frame = pd.DataFrame(rows)[[*common, "size", "speedup"]]
    return frame.assign(scaling_efficiency=frame["speedup"] / frame["size"])
