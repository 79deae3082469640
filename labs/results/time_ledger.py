"""The ledger of an epoch with 95 % intervals, the excess of each entry over the ideal, and what bounds the scaling.

A single run has the interval of its rounds, several runs have that of the runs. `samples` returns either; everything
else is computed from samples. `other` is the wall time without the measured entries, so each sample sums to it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from labs.measure import ledger_columns
from labs.results import statistics, tables
from labs.run.errors import LabError

if TYPE_CHECKING:
    import pandas as pd

    from labs.results.records import Record

WALL, OTHER = "wall", "other"
READABLE = 0.05
"""The largest share of `other` in an epoch whose other entries can be trusted."""


def samples(runs: Sequence[Record]) -> pd.DataFrame:
    """Return seconds per epoch, a column per entry and `wall`, one row per run; of a single run one row per round.

    Args:
        runs: Records of one configuration and one number of workers, with a ledger.

    Raises:
        LabError: A run has no ledger.
    """
    import pandas as pd

    ledgers = [ledger_columns.read(run["metrics"]) for run in runs]
    if not ledgers or not all(ledgers):
        raise LabError("a run has no ledger; run the lab with --ledger")
    if len(runs) == 1:
        (run,), wall = runs, ledgers[0][WALL]
        rounds = ledger_columns.by_round(run["tables"]["ledger"], int(run["history"][-1]["steps"]))
        ledgers = [row | {"other": wall - sum(row.values()), WALL: wall} for row in rounds]
    return pd.DataFrame(ledgers, columns=[*ledger_columns.ENTRIES, WALL]).fillna(0.0)


def by_cell(runs: Iterable[Record]) -> dict[tuple[int, int], pd.DataFrame]:
    """Return the samples of each batch size per worker and number of workers, in this order.

    Args:
        runs: Records with a ledger that differ in nothing but these two and the seed.
    """
    cells: dict[tuple[int, int], list[Record]] = {}
    for run in runs:
        cells.setdefault((run["config"]["batch_size"], run["layout"]["size"]), []).append(run)
    return {cell: samples(cells[cell]) for cell in sorted(cells)}


def table(seconds: pd.DataFrame) -> pd.DataFrame:
    """Return by entry the mean `seconds`, `plus_minus` (half of Student's 95 % interval) and `share` of the wall."""
    import pandas as pd

    means = seconds.mean()
    ends = {name: statistics.mean_interval(values)[1] for name, values in seconds.items()}
    return pd.DataFrame({"seconds": means, "plus_minus": pd.Series(ends) - means, "share": means / means[WALL]})


def excess(one: pd.DataFrame, many: pd.DataFrame, workers: int) -> pd.DataFrame:
    """Return by how much each entry exceeds 1/N of one worker's: columns `excess`, `low`, `high`; largest first.

    The interval is Welch's. The last row, "wall", is the sum: the wall time on N workers minus 1/N of that on one.
    One worker exchanges nothing: its measured `communication` is an error, and belongs to `other`.

    Args:
        one: Samples of one worker.
        many: Samples of `workers` workers with the same batch per worker.
        workers: N.
    """
    import pandas as pd

    one = one.assign(communication=0.0, other=one[OTHER] + one["communication"])
    rows = {name: statistics.difference(many[name], one[name] / workers) for name in many}
    frame = pd.DataFrame.from_dict(rows, orient="index", columns=["excess", "low", "high"])
    wall = frame.loc[[WALL]]
    return pd.concat([frame.drop(index=WALL).sort_values("excess", ascending=False), wall])


def bound(exceeding: pd.DataFrame) -> str:
    """Return a sentence on what bounds the scaling: the entry with the largest excess, or those that may have it.

    An excess that is not larger than that of `other` is no explanation, and a superlinear speedup needs none.
    """
    entries = exceeding.drop(index=WALL)
    largest, whole = entries.iloc[0], exceeding["excess"][WALL]
    if not whole > 0:
        return f"nothing bounds the scaling: the epoch is {-whole:.3f} s shorter than ideal, so the baseline is suspect"
    rivals = [name for name in entries.index[1:] if entries["high"][name] >= largest["low"]]
    figure = f"{largest['excess']:+.3f} s per epoch ({largest['low']:+.3f} to {largest['high']:+.3f})"
    if abs(entries["excess"][OTHER]) >= largest["excess"]:
        return f"not resolved: the unexplained `other` has an excess of {entries['excess'][OTHER]:+.3f} s per epoch"
    if not largest["low"] > 0:
        return f"not resolved: {entries.index[0]} has the largest excess, {figure}, which is within noise"
    if rivals:
        return (f"not resolved: {entries.index[0]} has the largest excess, {figure}, but {', '.join(rivals)} may be as "
                "large")
    return f"{entries.index[0]} bounds the scaling: {figure}"


def shown(cells: Mapping[Hashable, pd.DataFrame], digits: int = 2) -> pd.DataFrame:
    """Return the ledgers of several cells as text: a row per cell, "1.52 ± 0.04" by entry, and the share of `other`.

    Args:
        cells: Samples by cell, such as (batch size, workers).
        digits: Decimal places of the seconds.
    """
    import pandas as pd

    rows = {}
    for cell, seconds in cells.items():
        ledger, several = table(seconds), len(seconds) >= tables.LEAST
        rows[cell] = {name: f"{row.seconds:.{digits}f}"
                            + f" ± {row.plus_minus:.{digits}f}" * bool(several and row.plus_minus > 1e-9)
                      for name, row in ledger.iterrows()}
        rows[cell]["share of other"] = f"{ledger['share']['other']:.1%}"
    return pd.DataFrame.from_dict(rows, orient="index")


def trusted(cells: Mapping[tuple[int, int], pd.DataFrame]) -> bool:
    """Return whether `other` is below 5 % of the epoch in each of some ledgers; `cells` are from `by_cell`."""
    return all(abs(table(seconds)["share"][OTHER]) < READABLE for seconds in cells.values())


def above_zero(cells: Mapping[tuple[int, int], pd.DataFrame], entry: str, workers: int) -> str:
    """Return a sentence with the batch sizes for which an entry's 95 % interval lies above 0.

    Args:
        cells: From `by_cell`.
        entry: Its name.
        workers: Cells with this number of workers.
    """
    found = [str(batch) for (batch, size), seconds in cells.items()
             if size == workers and statistics.mean_interval(seconds[entry])[0] > 0]
    return f"By its interval, `{entry}` is above 0 for {'b = ' + ', '.join(found) if found else 'no b'}."


def readable(cells: Mapping[tuple[int, int], pd.DataFrame]) -> str:
    """Return a sentence on whether the entries of some ledgers can be trusted: `other` is below 5 % in each.

    Args:
        cells: From `by_cell`.
    """
    shares = {cell: float(table(seconds)["share"][OTHER]) for cell, seconds in cells.items()}
    large = [f"{100 * share:.0f} % (N = {workers}, b = {batch})" for (batch, workers), share in shares.items()
             if abs(share) >= READABLE]
    if large:
        return f"`other` is {', '.join(large)} of an epoch: do not trust the entries of these ledgers, measure again"
    return (f"`other` is at most {100 * max(map(abs, shares.values())):.1f} % of an epoch: the entries explain it, "
            "each to within its ±")
