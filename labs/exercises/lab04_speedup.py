"""Lab 4: weak and strong scaling, and what the ledger says."""

from __future__ import annotations

from labs.exercises.judge import (
    Question,
    Record,
    against_one,
    choice,
    efficiency,
    newest,
    number,
    parts,
    ratio,
    several,
    speedup,
    timed,
)
from labs.measure import ledger_columns
from labs.results import scaling

COMMAND = "`labs sweep lab04_speedup`"


def _ledger(run: Record) -> float | None:
    return timed(run) and run["metrics"].get(ledger_columns.WALL)


def _part(run: Record, name: str) -> float:
    return run["metrics"][ledger_columns.column(name)]


def _pairs(records: list[Record]) -> list[Record]:
    """Return, for each batch size, a run of one worker and one of as many as the newest pair has."""
    last = against_one(records, COMMAND)[1]
    size, found = last["layout"]["size"], []
    alike = [run for run in records if run["layout"]["size"] in (1, size)]
    for batch in sorted({run["config"]["batch_size"] for run in alike}):
        these = [run for run in alike if run["config"]["batch_size"] == batch]
        try:
            found += against_one(these, COMMAND)
        except AssertionError:
            continue  # A batch size that only a strong sweep has: nothing to compare with.
    return found


def _speedups(answer, runs: list[Record]) -> str:
    pairs = {one["config"]["batch_size"]: (one, many) for one, many in zip(runs[::2], runs[1::2], strict=True)}

    def judge(batch: int):
        one, many = pairs[batch]
        bases = {f"that divides by the run of batch size {other}, not by one worker with batch size {batch}":
                 ratio(timed(many), timed(run)) for other, pair in pairs.items() if other != batch for run in pair}
        return lambda value: speedup(value, one, many, bases)

    return parts(answer, {batch: judge(batch) for batch in pairs})


def _bound(answer, runs: list[Record]) -> str:
    one, many = runs
    size, wall = many["layout"]["size"], _part(many, "wall")
    excess = scaling.excess(one["metrics"], many["metrics"], size)
    right = {name for name in ledger_columns.ENTRIES if excess[name] > max(excess.values()) - 0.02 * wall}
    others = dict.fromkeys(ledger_columns.ENTRIES, f"another part lies farther above its part(1) / {size}")
    largest = max(ledger_columns.ENTRIES, key=lambda name: _part(many, name))
    others[largest] = f"it is the largest part, but that is no loss: take part({size}) - part(1) / {size} of each"
    return choice(answer, right, others, f"part({size}) - part(1) / {size} is largest here")


def _exchange(answer, runs: list[Record]) -> str:
    (run,) = runs
    wall = _part(run, "wall")
    share = {name: _part(run, name) / wall for name in ledger_columns.ENTRIES}
    return number(answer, share["communication"], "share", "ledger_communication_seconds / ledger_wall_seconds", {
        "that counts the input as communication, as a report did with its data loader":
            share["communication"] + share["input"],
        "that is the input, which a report took for communication": share["input"],
        "that takes all that is not computing for communication": 1 - share["compute"],
        "that is the share of computing; of the whole epoch is wanted":
            ratio(share["communication"], share["compute"]),
        "that is in seconds": _part(run, "communication"),
    }, slack=0.002)


QUESTIONS = {
    "q1": Question("These are runs of one worker and of several, a pair for each batch size per worker. What is the "
                   "speedup of each pair?", "`{batch size: speedup, ...}`", _pairs, _speedups),
    "q2": Question("These two runs have the same global batch. What is the efficiency of this strong scaling?",
                   "a share, from 0 to 1",
                   lambda records: against_one(records, COMMAND, strong=True, fits=timed),
                   lambda answer, runs: efficiency(answer, *runs)),
    "q3": Question("With `n` ideal workers, every part of the ledger would take an `n`-th of what it takes one worker. "
                   "Which part of the second of these runs is farthest above that, in seconds per epoch?",
                   '`"compute"`, `"communication"`, `"input"` or `"other"`',
                   lambda records: against_one(records, COMMAND, fits=_ledger), _bound),
    "q4": Question("Which share of an epoch of this run is communication?", "a share, from 0 to 1",
                   lambda records: [newest(records, "several workers with a ledger", COMMAND,
                                           lambda run: several(run) and _ledger(run))], _exchange),
}
