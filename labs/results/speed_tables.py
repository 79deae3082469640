"""Tables of throughput and speedup: on the report page, after a sweep, and at the end of a run."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from labs.results import records, scaling, tables
from labs.run.text import plural

if TYPE_CHECKING:
    import pandas as pd

TITLES = {"weak": "Speed and weak scaling: constant batch per worker",
          "strong": "Speed and strong scaling: constant global batch", "": "Speed"}
"""Titles, by the kind of scaling."""


@dataclasses.dataclass(frozen=True)
class Speeds:
    """A table of `scaling.speedups` over `base` workers; its configurations differ in the columns `by`."""

    scaling: Literal["weak", "strong", ""]
    table: pd.DataFrame
    by: list[str]
    base: int

    @property
    def title(self) -> str:
        """The table's title; it names no scaling if only one number of workers ran."""
        return TITLES[self.scaling]

    def grid(self) -> tables.Grid:
        """Return the table for a page, with speedups if there is anything to compare."""
        nodes = ["nodes"] if self.table["nodes"].nunique() > 1 else []
        ratios = ["speedup", "scaling_efficiency", "note"] if self.scaling else []
        n = "n" if self.base == 1 else f"(n / {self.base})"
        note = (f"images/s: geometric mean over the repeats, without the first epoch [95 % interval; {tables.FEW}]"
                + f"; speedup: throughput(n) / throughput({self.base}) of the same configuration [95 % for all rows "
                  f"together]; efficiency: speedup / {n}" * bool(self.scaling))
        columns = [*self.by, "size", *nodes, "repeats", "images_per_sec", "seconds_per_epoch", "first_epoch_seconds"]
        return tables.grid(self.title, self.table, [*columns, *ratios], note)


def frame(runs: Iterable[records.Record]) -> tuple[pd.DataFrame, list[str]]:
    """Return runs as a table that can be grouped by, and the settings in which they differ."""
    table = records.table(runs)
    table = scaling.comparable(table, table.columns)
    return table, [name for name in scaling.configuration(table) if table[name].map(str).nunique() > 1]


def compared(runs: pd.DataFrame, varying: list[str]) -> Iterator[Speeds]:
    """Yield the tables that some runs allow: weak and strong scaling, or speed only; nothing without throughputs."""
    if not len(runs) or not runs["images_per_sec"].notna().any():
        return
    base = 1 if (runs["size"] == 1).any() else int(runs["size"].min())
    weak, strong = (scaling.speedups(runs, base, varying, kind) for kind in ("weak", "strong"))
    weakly, strongly = (table["speedup"].notna() & (table["size"] > base) for table in (weak, strong))
    if weakly.any() or not strongly.any():
        yield Speeds("weak" if weakly.any() else "", weak, [name for name in varying if name in weak], base)
    if strongly.any():  # Rows without a partner at the same global batch are in the other table.
        partners = strong[strong["global_batch_size"].isin(strong["global_batch_size"][strongly])]
        yield Speeds("strong", partners, [*(name for name in varying if name in strong), "global_batch_size"], base)


def summary(runs: Iterable[records.Record]) -> str:
    """Return the tables that some runs allow, as text for a terminal."""
    grids = [speeds.grid() for speeds in compared(*frame(runs))]
    return "\n\n".join(f"{each.text()}\n({each.note})" for each in grids)


def against_one_worker(record: dict[str, Any], results_root: Path, free: Collection[str]) -> str:
    """Return a run's speedup over one worker, a line each for weak and strong scaling, or the command for a baseline.

    Args:
        record: The record of a run on several workers.
        results_root: Where to look for runs of one worker.
        free: Fields of the lab's Config that do not affect one worker, such as the backend.
    """
    if not record["timings"]["images_per_sec"]:
        return "no speedup: a throughput leaves out the first epoch, and there is no other; use --epochs 2 or more"
    alone = [run for run in records.read_all(record["lab"], results_root) if run["layout"]["size"] == 1]
    runs = records.table([*alone, record])
    by = [name for name in scaling.configuration(runs) if name.removeprefix("asked_") not in free]
    lines = [_speedup(scaling.speedups(runs, by=by, scaling="weak"), "batch per worker"),
             _speedup(scaling.speedups(runs, by=by, scaling="strong"), "global batch")]
    return "\n".join(filter(None, lines)) or (
        "no speedup: no run of 1 worker with these settings and the same batch per worker or the same global batch; "
        f"`labs run {record['lab']} --workers 1` with the same options makes it")


def _speedup(table: pd.DataFrame, held: str) -> str:
    """Return the speedup of the only row with several workers; "" if there is nothing to compare it with."""
    (row,) = table[table["size"] > 1].to_dict("records")
    if math.isnan(row["speedup"]):
        return ""
    return (f"{row['size']} workers against one, same {held}: speedup {row['speedup']:.2f}, scaling efficiency "
            f"{row['scaling_efficiency']:.2f}, from {plural(row['repeats'], 'run')}"
            + f". {row['note']}" * bool(row["note"]))
