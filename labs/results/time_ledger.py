"""The ledger of an epoch with 95 % intervals, the excess of each entry over the ideal, and what bounds the scaling.

A single run has the interval of its rounds, several runs have that of the runs. `samples` returns either; everything
else is computed from samples. `other` is the wall time without the measured entries, so each sample sums to it.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from labs.measure import ledger_columns
from labs.results import noise, tables
from labs.run.errors import LabError

if TYPE_CHECKING:
    import pandas as pd

    from labs.results.records import Record

WALL, OTHER = "wall", "other"
READABLE = 0.05
"""The largest share of `other` in an epoch whose other entries can be trusted."""


def samples(runs: Sequence[Record]) -> pd.DataFrame:
    """Return seconds per epoch, a column per entry and `wall`, one row per run; of a single run one row per round.

    The index is the seed, by which runs are paired, or the run and its round. Disturbed runs are left out where there
    are others; `attrs["disturbed"]` names them.

    Args:
        runs: Records of one configuration and one number of workers, with a ledger.

    Raises:
        LabError: A run has no ledger.
    """
    import pandas as pd

    causes = [noise.disturbance(run) for run in runs]
    disturbed = [f"{run['run']} ({cause})" for run, cause in zip(runs, causes, strict=True) if cause]
    runs = [run for run, cause in zip(runs, causes, strict=True) if not cause] or list(runs)
    ledgers = [ledger_columns.read(run["metrics"]) for run in runs]
    if not ledgers or not all(ledgers):
        raise LabError("a run has no ledger; run the lab with --ledger")
    index: list[Hashable] = [run["config"].get("seed", run["run"]) for run in runs]
    if len(runs) == 1:
        (run,), wall = runs, ledgers[0][WALL]
        rounds = ledger_columns.by_round(run["tables"]["ledger"], int(run["history"][-1]["steps"]))
        ledgers = [row | {"other": wall - sum(row.values()), WALL: wall} for row in rounds]
        index = [f"{run['run']}, round {number}" for number in range(len(rounds))]
    frame = pd.DataFrame(ledgers, index, columns=[*ledger_columns.ENTRIES, WALL]).fillna(0.0)
    frame.attrs["disturbed"] = disturbed
    return frame


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
    ends = {name: noise.mean_interval(values)[1] for name, values in seconds.items()}
    return pd.DataFrame({"seconds": means, "plus_minus": pd.Series(ends) - means, "share": means / means[WALL]})


def excess(one: pd.DataFrame, many: pd.DataFrame, workers: int) -> pd.DataFrame:
    """Return by how much each entry exceeds 1/N of one worker's: columns `excess`, `low`, `high`; largest first.

    The last row, "wall", is the sum: the wall time on N workers minus 1/N of that on one. One worker exchanges nothing:
    its measured `communication` is an error, and belongs to `other`.

    Args:
        one: Samples of one worker.
        many: Samples of `workers` workers with the same batch per worker.
        workers: N.
    """
    import pandas as pd

    ideal = _ideal(one, workers)
    rows = {name: noise.compare(many[name], ideal[name]) for name in many}
    frame = pd.DataFrame({"excess": {name: each.value for name, each in rows.items()},
                          "low": {name: each.low for name, each in rows.items()},
                          "high": {name: each.high for name, each in rows.items()}})
    wall = frame.loc[[WALL]]
    return pd.concat([frame.drop(index=WALL).sort_values("excess", ascending=False), wall])


def _ideal(one: pd.DataFrame, workers: int) -> pd.DataFrame:
    """Return the ledger of ideal workers: 1/N of that of one, whose communication counts as `other`."""
    return one.assign(communication=0.0, other=one[OTHER] + one["communication"]) / workers


def bound(one: pd.DataFrame, many: pd.DataFrame, workers: int) -> str:
    """Return a sentence on what bounds the scaling: the entry whose excess exceeds all others by more than noise.

    An excess that is not larger than that of `other`, of either sign, is no explanation, and a superlinear speedup
    needs none. Arguments as in `excess`.
    """
    entries, ideal = excess(one, many, workers)["excess"], _ideal(one, workers)
    largest, *others = entries.drop(WALL).index
    compare = functools.partial(noise.compare, comparisons=len(others) + 3, unit="s per epoch", digits=3)
    whole, own = (compare(many[name], ideal[name]) for name in (WALL, largest))
    leads = {name: compare(many[largest] - many[name], ideal[largest] - ideal[name]) for name in others}
    leads[f"-{OTHER}"] = compare(many[largest] + many[OTHER], ideal[largest] + ideal[OTHER])
    rivals = ", ".join(dict.fromkeys(name.removeprefix("-") for name, lead in leads.items() if lead.direction < 1))
    disturbed = ", ".join([*one.attrs.get("disturbed", ()), *many.attrs.get("disturbed", ())])
    if whole.direction < 0:
        sentence = f"nothing bounds the scaling: the epoch is shorter than ideal, {whole.figures}: check the baseline"
    elif whole.value <= 0:
        sentence = f"not resolved: the epoch is not longer than ideal, {whole.figures}"
    elif largest == OTHER or not own.resolved:
        sentence = f"not resolved: {largest} has the largest excess, {own.figures}"
    elif rivals:
        sentence = f"not resolved: {largest} has the largest excess, {own.figures}, but {rivals} may be as large"
    else:
        sentence = f"{largest} bounds the scaling: {own.figures}"
    return sentence + f"; disturbed: {disturbed}" * bool(disturbed)


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
    """Return a sentence with the batch sizes for which an entry lies above 0; their 95 % intervals hold together.

    Args:
        cells: From `by_cell`.
        entry: Its name.
        workers: Cells with this number of workers.
    """
    chosen = {batch: seconds[entry] for (batch, size), seconds in cells.items() if size == workers}
    found = [str(batch) for batch, values in chosen.items() if noise.mean_interval(values, len(chosen))[0] > 0]
    return f"`{entry}` is above 0 by more than noise for {'b = ' + ', '.join(found) if found else 'no b'}."


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
