"""Questions of lab 4: weak and strong scaling, and the ledger of an epoch."""

from __future__ import annotations

from labs.course.exercises.grading import (
    Question,
    Record,
    grade_choice,
    grade_efficiency,
    grade_entries,
    grade_number,
    grade_speedup,
    images_per_sec,
    multi_worker,
    newest,
    pair_with_one_worker,
    ratio,
)
from labs.measure import ledger_columns

COMMAND = "`labs sweep lab04_speedup`"
PAIR = pair_with_one_worker(COMMAND)


def _ledger(run: Record) -> float | None:
    return images_per_sec(run) and run["metrics"].get(ledger_columns.WALL)


def _part(run: Record, name: str) -> float:
    # Runs from before the ledger had `start` count it in `other`.
    return run["metrics"].get(ledger_columns.column(name), 0.0)


def _pairs(records: list[Record]) -> list[Record]:
    """Return for each batch size a run of one worker and one with the number of workers of the newest pair."""
    last = PAIR(records)[1]
    size, pairs = last["layout"]["size"], []
    candidates = [run for run in records if run["layout"]["size"] in (1, size)]
    for batch in sorted({run["config"]["batch_size"] for run in candidates}):
        of_batch = [run for run in candidates if run["config"]["batch_size"] == batch]
        try:
            pairs += PAIR(of_batch)
        except AssertionError:
            continue  # A batch size of the strong-scaling sweep only: it has no baseline.
    return pairs


def _speedups(answer, runs: list[Record]) -> str:
    pairs = {one["config"]["batch_size"]: (one, many) for one, many in zip(runs[::2], runs[1::2], strict=True)}

    def grader(batch: int):
        wrong_baselines = {
            f"that divides by the run of batch size {other}, not by one worker with batch size {batch}":
            ratio(images_per_sec(pairs[batch][1]), images_per_sec(run))
            for other, pair in pairs.items() if other != batch for run in pair}
        return lambda value: grade_speedup(value, pairs[batch], wrong_baselines)

    return grade_entries(answer, {batch: grader(batch) for batch in pairs})


def _bound(answer, runs: list[Record]) -> str:
    one, many = runs
    size, wall = many["layout"]["size"], _part(many, "wall")
    excess = {name: _part(many, name) - _part(one, name) / size for name in ledger_columns.ENTRIES}
    right = {name for name in ledger_columns.ENTRIES if excess[name] > max(excess.values()) - 0.02 * wall}
    others = dict.fromkeys(ledger_columns.ENTRIES, f"another entry is farther above its entry(1) / {size}")
    largest = max(ledger_columns.ENTRIES, key=lambda name: _part(many, name))
    others[largest] = f"it is the largest entry, but not the largest loss: compare entry({size}) - entry(1) / {size}"
    return grade_choice(answer, right, others, f"entry({size}) - entry(1) / {size} is largest here")


def _exchange(answer, runs: list[Record]) -> str:
    (run,) = runs
    wall = _part(run, "wall")
    share = {name: _part(run, name) / wall for name in ledger_columns.ENTRIES}
    return grade_number(answer, share["communication"], "share", "ledger_communication_seconds / ledger_wall_seconds", {
        "that counts the input as communication, as one of the reports did with its data loader":
            share["communication"] + share["input"],
        "that is the input, which one of the reports took for communication": share["input"],
        "that counts everything but computing as communication": 1 - share["compute"],
        "that is relative to computing; the share of the whole epoch is asked for":
            ratio(share["communication"], share["compute"]),
        "that is in seconds": _part(run, "communication"),
    }, abs_tol=0.002)


QUESTIONS = {
    "q1": Question("These are pairs of runs, of one worker and of several, one pair for each batch size per worker. "
                   "What is the speedup of each pair?", "`{batch size: speedup, ...}`", _pairs, _speedups),
    "q2": Question("These two runs have the same global batch. What is the strong-scaling efficiency?",
                   "a share, from 0 to 1",
                   pair_with_one_worker(COMMAND, strong=True), grade_efficiency),
    "q3": Question("With `n` ideal workers, every entry of the ledger would take 1/`n` of its time with one worker. "
                   "Which entry of the second run is farthest above that, in seconds per epoch? (The ledger is in "
                   "`record[\"metrics\"]`, from `ledger_input_seconds` to `ledger_wall_seconds`: medians of the "
                   "rounds; the page's table has means.)",
                   '`"compute"`, `"communication"`, `"input"`, `"start"` or `"other"`',
                   pair_with_one_worker(COMMAND, accept=_ledger), _bound),
    "q4": Question("What share of an epoch's time is communication in this run?", "a share, from 0 to 1",
                   newest("several workers with a ledger", COMMAND, lambda run: multi_worker(run) and _ledger(run)),
                   _exchange),
}
