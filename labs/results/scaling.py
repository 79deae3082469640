"""Throughput over repeats, speedups and scaling efficiency, each within one configuration.

A configuration is every setting except the seed (a repeat is a run with another seed) and the number of workers.
Nothing here compares one configuration with another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from labs.results import statistics
from labs.run.errors import LabError
from labs.run.text import plural

if TYPE_CHECKING:
    import pandas as pd

SECONDS = ("seconds_per_epoch", "first_epoch_seconds", "total_seconds")
ROUNDED = 0.005
"""How far above 1 an efficiency may be because its figures were rounded."""


def above_one(efficiency: float, low: float = math.nan) -> str:
    """Return a warning if a scaling efficiency is above 1; otherwise an empty string.

    Args:
        efficiency: Speedup / workers.
        low: Lower end of its interval; NaN if it has none.
    """
    if not efficiency > 1 + ROUNDED:
        return ""
    return "E > 1, but its interval includes 1" if low <= 1 else "E > 1: the baseline is suspect, measure it again"


def configuration(frame: pd.DataFrame) -> list[str]:
    """Return the columns of a run's configuration: the fields of its Config that have a value, without the seed.

    Args:
        frame: From `records.load`, which notes in `frame.attrs["config"]` which columns came from a Config.

    Raises:
        LabError: The frame has lost that note, as after `pd.concat` or `merge`; name the columns yourself.
    """
    if "config" not in frame.attrs:
        raise LabError("this table does not say which columns are its configuration; name them: by=['batch_size', ...]")
    columns = [column for column in ("lab", *frame.attrs["config"]) if column != "seed" and column in frame]
    return [column for column in columns if frame[column].notna().any()]


def _grouped(frame: pd.DataFrame, by: list[str]) -> tuple[pd.DataFrame, list[np.ndarray]]:
    """Return one row per configuration and number of workers, and the throughputs of the repeats behind each row.

    `images_per_sec` is the median. `_low` and `_high` are Student's 95 % interval of the geometric mean, computed on
    the logarithms because throughputs are compared as ratios; they are NaN for a single run. Seconds (the
    first epoch separately) are medians.
    """
    by = by + [column for column in ("size", "nodes") if column in frame and column not in by]
    frame = comparable(_timed(frame), by)
    medians = [name for name in SECONDS if name in frame and name not in by]
    # Numbered once: pandas would compare all columns of the configuration again for each median.
    numbered = frame.groupby(by, dropna=False, sort=True).ngroup()
    first, groups = ~numbered.duplicated(), frame.groupby(numbered)
    table = frame.loc[first, by].set_index(numbered[first]).sort_index()
    logs, repeats = groups["_log"], groups.size()
    table["repeats"] = repeats
    table["images_per_sec"] = groups["images_per_sec"].median()
    table["images_per_sec_low"], table["images_per_sec_high"] = statistics.interval_of_logs(
        logs.mean(), logs.var() / repeats, repeats - 1)
    for name in medians:
        table[name] = groups[name].median()
    return table.reset_index(drop=True), [rows.to_numpy() for _, rows in groups["images_per_sec"]]


def _timed(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the runs that have a throughput, with numeric timings; a run of one epoch has none."""
    if "images_per_sec" not in frame:
        frame = frame.assign(images_per_sec=np.nan)
    frame = numbers(frame, [name for name in ("images_per_sec", *SECONDS) if name in frame])
    frame = frame[np.isfinite(frame["images_per_sec"]) & (frame["images_per_sec"] > 0)]
    return frame.assign(_log=np.log(frame["images_per_sec"]))


def numbers(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Return a frame with some columns as numbers; anything else in them becomes NaN."""
    import pandas as pd

    return frame.assign(**{name: pd.to_numeric(frame[name], errors="coerce").astype(float) for name in columns})


def comparable(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Return a frame that can be grouped by some columns: their lists become text."""
    lists = {name: frame[name].map(lambda value: str(value) if isinstance(value, list | dict) else value)
             for name in columns if frame[name].dtype == object}
    return frame.assign(**lists)


def speedups(frame: pd.DataFrame, base: int = 1, by: Sequence[str] | None = None,
             scaling: Literal["weak", "strong"] = "weak") -> pd.DataFrame:
    """Return the speedup and scaling efficiency over `base` workers, a row per configuration and number of workers.

    The columns beside them are those of `_grouped`. The speedup is throughput(n) / throughput(base), the efficiency
    speedup / (n / base), both with Welch's 95 % interval over the repeats (Welch 1947, on the logarithms; NaN if either
    side ran once). A row is compared only with `base` workers of the same configuration. Without such runs it has NaN,
    and the column `note` says so; it also warns of an efficiency above 1.

    Args:
        frame: Runs, one row each, from `records.load`.
        base: Number of workers to compare with.
        by: The columns of a configuration; by default all fields of the runs' Configs except the seed.
        scaling: "weak": the batch per worker is fixed, so n workers do n times the work in a step; "strong": the
            global batch is fixed, so `global_batch_size` replaces `batch_size` in the configuration.
    """
    by = list(by if by is not None else configuration(frame))
    if scaling == "strong":
        by = ["global_batch_size", *(name for name in by if name not in ("batch_size", "global_batch_size"))]
    elif "batch_size" in by:
        by = [name for name in by if name != "global_batch_size"]
    table, throughputs = _grouped(frame, by)
    ratios = _ratios(throughputs, table, by, base)
    for index, name in enumerate(("speedup", "speedup_low", "speedup_high")):
        table[name] = [ratio[index] for ratio in ratios]
        table[name.replace("speedup", "scaling_efficiency")] = table[name] / (table["size"] / base)
    missing = f"no run of {plural(base, 'worker')} of this configuration to compare with"
    ends = zip(table["scaling_efficiency"], table["scaling_efficiency_low"], strict=True)
    table["note"] = [missing if math.isnan(value) else above_one(value, low) for value, low in ends]
    return table


def _ratios(throughputs: list[np.ndarray], table: pd.DataFrame, by: list[str], base: int) -> list[tuple]:
    """Return throughput(size) / throughput(base) of each row's configuration, with its interval; NaN without a base.

    Args:
        throughputs: Those of the repeats, one array per row of `table`.
        table: The summary.
        by: The columns of a configuration.
        base: Number of workers; if they ran on several numbers of nodes, the fewest nodes count.
    """
    configurations = table.groupby(by, dropna=False).ngroup() if by else [0] * len(table)
    alone = table[table["size"] == base].sort_values([name for name in ("nodes", "size") if name in table])
    bases = {configurations[row]: row for row in reversed(alone.index)}
    rows = [(row, bases.get(configuration)) for row, configuration in enumerate(configurations)]
    return [(math.nan if other is None else 1.0, math.nan, math.nan) if other in (None, row)
            else statistics.ratio(throughputs[row], throughputs[other]) for row, other in rows]
