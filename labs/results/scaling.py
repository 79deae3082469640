"""Throughput over repeats, speedups and scaling efficiency, each within one configuration.

A configuration is every setting except the seed (a repeat is a run with another seed) and the number of workers.
Nothing here compares one configuration with another.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from labs.results import noise, records, tables
from labs.run.errors import LabError

if TYPE_CHECKING:
    import pandas as pd

SECONDS = ("seconds_per_epoch", "first_epoch_seconds", "total_seconds")
ROUNDED = 0.005  # How far above 1 an efficiency may be because its figures were rounded.


def warn_above_one(efficiency: float, low: float = math.nan) -> str:
    """Return a warning if a scaling efficiency, whose interval begins at `low`, is above 1; otherwise ""."""
    if not efficiency > 1 + ROUNDED:
        return ""
    return "E > 1, but its interval includes 1" if low <= 1 else "E > 1: the baseline is suspect, measure it again"


def configuration(frame: pd.DataFrame) -> list[str]:
    """Return the columns of a run's configuration: the fields of its Config that have a value, without the seed."""
    if "config" not in frame.attrs:  # As after `pd.concat` or `merge`.
        raise LabError("this table does not say which columns are its configuration; name them: by=['batch_size', ...]")
    columns = [column for column in ("lab", *frame.attrs["config"]) if column != "seed" and column in frame]
    return [column for column in columns if frame[column].notna().any()]


def frame(runs: Iterable[records.Record]) -> tuple[pd.DataFrame, list[str]]:
    """Return runs as a table that can be grouped by, and the settings in which they differ."""
    table = records.table(runs)
    table = comparable(table, table.columns)
    return table, [name for name in configuration(table) if table[name].map(str).nunique() > 1]


def numbers(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Return a frame with some columns as numbers; anything else in them becomes NaN."""
    import pandas as pd

    return frame.assign(**{name: pd.to_numeric(frame[name], errors="coerce").astype(float) for name in columns})


def comparable(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Return a frame that can be grouped by some columns: their lists become text."""
    lists = {name: frame[name].map(lambda value: str(value) if isinstance(value, list | dict) else value)
             for name in columns if frame[name].dtype == object}
    return frame.assign(**lists)


def speedups(frame: pd.DataFrame, by: Sequence[str] | None = None,
             scaling: Literal["weak", "strong"] = "weak") -> pd.DataFrame:
    """Return the speedup and scaling efficiency over one worker, a row per configuration and number of workers.

    The columns beside them are those of `_group`. The speedup is throughput(n) / throughput(1) of one configuration,
    with the verdict `direction` and the interval of `noise.compare`, which holds for all rows together; the efficiency
    is speedup / n. The column `note` says if there is no base, and warns of an efficiency above 1.

    Args:
        frame: Runs, one row each, from `records.load`.
        by: The columns of a configuration; by default all fields of the runs' Configs except the seed.
        scaling: Whether the batch per worker is fixed ("weak") or the global batch ("strong").
    """
    by = list(by if by is not None else configuration(frame))
    if scaling == "strong":
        by = ["global_batch_size", *(name for name in by if name not in ("batch_size", "global_batch_size"))]
    elif "batch_size" in by:
        by = [name for name in by if name != "global_batch_size"]
    table, runs = _group(frame, by)
    configurations = table.groupby(by, dropna=False).ngroup() if by else [0] * len(table)
    alone = {configurations[row]: row for row in table.index[table["size"] == 1]}
    bases = [alone.get(configuration) for configuration in configurations]
    count = sum(other not in (None, row) for row, other in enumerate(bases))
    ratios = [noise.Comparison(math.nan if other is None else 1.0, math.nan, math.nan) if other in (None, row) else
              noise.compare(runs[row], runs[other], "images_per_sec", ratio=True, comparisons=count)
              for row, other in enumerate(bases)]
    for end, name in {"": "value", "_low": "low", "_high": "high"}.items():
        table[f"speedup{end}"] = np.array([getattr(ratio, name) for ratio in ratios], float)
    for end in ("", "_low", "_high"):
        table[f"scaling_efficiency{end}"] = table[f"speedup{end}"] / table["size"]
    table["direction"] = np.array([ratio.direction for ratio in ratios], int)
    missing = "no run of 1 worker of this configuration to compare with"
    notes = [missing if math.isnan(value) else warn_above_one(value, low)
             for value, low in zip(table["scaling_efficiency"], table["scaling_efficiency_low"], strict=True)]
    table["note"] = ["; ".join(filter(None, pair)) for pair in zip(notes, table.pop("note"), strict=True)]
    return table


def _group(frame: pd.DataFrame, by: list[str]) -> tuple[pd.DataFrame, list[pd.DataFrame]]:
    """Return one row per configuration and number of workers, and the runs behind each row.

    Runs of one epoch have no throughput and are left out; so are disturbed runs where there are others, and the column
    `note` names them. `images_per_sec` is the geometric mean, with Student's 95 % interval; seconds are medians.
    """
    by = by + [column for column in ("size", "nodes") if column in frame and column not in by]
    frame = frame if "images_per_sec" in frame else frame.assign(images_per_sec=np.nan)
    seconds = [name for name in SECONDS if name in frame and name not in by]
    frame = comparable(numbers(frame, ["images_per_sec", *seconds]), by)
    frame = frame[np.isfinite(frame["images_per_sec"]) & (frame["images_per_sec"] > 0)]
    # Numbered once: pandas would compare all columns of the configuration again for each mean.
    numbered = frame.groupby(by, dropna=False, sort=True).ngroup()
    groups = [_undisturbed(runs) for _, runs in frame.groupby(numbered)]
    table = frame.loc[~numbered.duplicated(), by].set_index(numbered[~numbered.duplicated()]).sort_index()
    throughputs = [runs["images_per_sec"] for runs, _ in groups]
    table["repeats"] = [len(each) for each in throughputs]
    table["images_per_sec"] = [noise.geometric_mean(each) for each in throughputs]
    ends = np.array([noise.geometric_interval(each) for each in throughputs]).reshape(-1, 2)
    table["images_per_sec_low"], table["images_per_sec_high"] = ends.T
    for name in seconds:
        table[name] = [runs[name].median() for runs, _ in groups]
    table["note"] = [note for _, note in groups]
    return table.reset_index(drop=True), [runs for runs, _ in groups]


def _undisturbed(runs: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Return the runs that were not disturbed, or all if all were, and a note that names the others."""
    if "disturbed" not in runs or not runs["disturbed"].any():
        return runs, ""
    disturbed = runs[runs["disturbed"] != ""]
    names = ", ".join(f"{run.run} ({run.disturbed})" for run in disturbed.itertuples())
    if len(disturbed) < len(runs):
        return runs[runs["disturbed"] == ""], f"left out, disturbed: {names}"
    return runs, f"disturbed, measure again: {names}"


def compare_speeds(runs: pd.DataFrame, varying: list[str]) -> Iterator[tuple[tables.Grid, pd.DataFrame, list[str]]]:
    """Yield the tables of weak and strong scaling that runs allow which differ in the settings `varying`.

    Beside each come its rows with a speedup, none if only one number of workers ran, and the columns of their settings.
    """
    if not len(runs) or not runs["images_per_sec"].notna().any():
        return
    weak, strong = (speedups(runs, varying, kind) for kind in ("weak", "strong"))
    weakly, strongly = (table["speedup"].notna() & (table["size"] > 1) for table in (weak, strong))
    if weakly.any():
        yield _speeds("Speed and weak scaling: constant batch per worker", weak, varying)
    elif not strongly.any():
        yield _speeds("Speed", weak.assign(speedup=np.nan), varying)
    if strongly.any():  # Rows without a partner at the same global batch are in the other table.
        partners = strong[strong["global_batch_size"].isin(strong["global_batch_size"][strongly])]
        yield _speeds("Speed and strong scaling: constant global batch", partners, [*varying, "global_batch_size"])


def _speeds(title: str, table: pd.DataFrame, by: list[str]) -> tuple[tables.Grid, pd.DataFrame, list[str]]:
    """Return a table of speedups for a page, its rows with a speedup, and those columns of `by` that it has."""
    by, compared = [name for name in by if name in table], table[table["speedup"].notna()]
    nodes = ["nodes"] if table["nodes"].nunique() > 1 else []
    note = f"images/s: geometric mean over the repeats, without the first epoch [95 % interval; {tables.FEW}]"
    columns = [*by, "size", *nodes, "repeats", "images_per_sec", "seconds_per_epoch", "first_epoch_seconds"]
    if len(compared):
        columns += ["speedup", "scaling_efficiency", "note"]
        note += ("; speedup: throughput(n) / throughput(1) of the same configuration [95 % for all rows together]; "
                 "efficiency: speedup / n")
    return tables.grid(title, table, columns, note), compared, by


def summary(runs: Iterable[records.Record]) -> str:
    """Return the tables that some runs allow, as text for a terminal."""
    return "\n\n".join(f"{grid.text()}\n({grid.note})" for grid, *_ in compare_speeds(*frame(runs)))
