"""Exercises of lab 4: weak and strong scaling, efficiency with its interval, the ledger of an epoch."""

from collections.abc import Mapping

import numpy as np

from labs.exercises.code_tasks import AVERAGED, StudentFunction, bug, close, code
from labs.exercises.grading import (
    Question,
    grade_choice,
    grade_efficiency,
    grade_entries,
    grade_number,
    grade_speedup,
    ratio,
)
from labs.exercises.selecting import Record, images_per_sec, multi_worker, newest, pair_with_one_worker
from labs.results import noise
from labs.results.ledger import ENTRIES

COMMAND = "`labs sweep lab04_speedup`"
PAIR = pair_with_one_worker(COMMAND)


def _ledger(run: Record) -> float | None:
    return images_per_sec(run) and run["metrics"].get("ledger_wall_seconds")


def _part(run: Record, name: str) -> float:
    return run["metrics"].get(f"ledger_{name}_seconds", 0.0)


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


def _speedups(answer, *runs: Record) -> str:
    pairs = {one["config"]["batch_size"]: (one, many) for one, many in zip(runs[::2], runs[1::2], strict=True)}

    def grader(batch: int):
        wrong_baselines = {
            f"that divides by the run of batch size {other}, not by one worker with batch size {batch}":
            ratio(images_per_sec(pairs[batch][1]), images_per_sec(run))
            for other, pair in pairs.items() if other != batch for run in pair}
        return lambda value: grade_speedup(value, *pairs[batch], wrong_baselines)

    return grade_entries(answer, {batch: grader(batch) for batch in pairs})


def _bound(answer, one: Record, many: Record) -> str:
    size, wall = many["layout"]["size"], _part(many, "wall")
    excess = {name: _part(many, name) - _part(one, name) / size for name in ENTRIES}
    right = {name for name in ENTRIES if excess[name] > max(excess.values()) - 0.02 * wall}
    others = dict.fromkeys(ENTRIES, f"another entry is farther above its entry(1) / {size}")
    largest = max(ENTRIES, key=lambda name: _part(many, name))
    others[largest] = f"it is the largest entry, but not the largest loss: compare entry({size}) - entry(1) / {size}"
    return grade_choice(answer, right, others, f"entry({size}) - entry(1) / {size} is largest here")


def _exchange(answer, run: Record) -> str:
    wall = _part(run, "wall")
    share = {name: _part(run, name) / wall for name in ENTRIES}
    return grade_number(answer, share["communication"], "share", "ledger_communication_seconds / ledger_wall_seconds", {
        "that counts the input as communication, as one of the reports did with its data loader":
            share["communication"] + share["input"],
        "that is the input, which one of the reports took for communication": share["input"],
        "that counts everything but computing as communication": 1 - share["compute"],
        "that is relative to computing; the share of the whole epoch is asked for":
            ratio(share["communication"], share["compute"]),
        "that is in seconds": _part(run, "communication")}, abs_tol=0.002)


QUESTIONS = {
    "q1": Question(_pairs, _speedups, timed=True),
    "q2": Question(pair_with_one_worker(COMMAND, strong=True), grade_efficiency, timed=True),
    "q3": Question(pair_with_one_worker(COMMAND, accept=_ledger), _bound, timed=True),
    "q4": Question(newest("several workers with a ledger", COMMAND, lambda run: multi_worker(run) and
                   _ledger(run)), _exchange, timed=True),
}

NARROWEST, WIDEST = 0.65, 1.5
"""How wide an interval may be, relative to Welch's: a bootstrap of eight repeats gives about 0.85 of it."""
CENTRE = 0.02
"""How far the value may be from the quotient of the medians: means, medians and geometric means differ."""


def _grade_efficiency(run: StudentFunction) -> str:
    # Throughputs of one worker and of n: with equal noise, with noisy repeats of one, with noisy repeats of n.
    noises = np.array([-1.1, 0.4, 1.5, -0.6, 0.1, -1.4, 0.9, 0.2])
    repeats = (
        (100 + 2 * noises, 150 + 3 * noises[::-1], 2), (100 + 4 * noises, 150 + 0.3 * noises[::-1], 2),
        (100 + 0.2 * noises, 320 + 13 * noises[::-1], 4),
    )
    alone, n = run.real(80, 120), run.whole(2, 4)
    drawn = alone * (1 + 0.02 * noises), run.real(0.7, 0.95) * n * alone * (1 + 0.02 * noises[::-1]), n
    for one, many, n in (*repeats, drawn):
        call = run(one.round(1).tolist(), many.round(1).tolist(), n)
        value, low, high = call.numbers(call.value, 3, "the result is three numbers, (value, low, high)")
        welch = noise.compare(many.round(1), one.round(1), ratio=True)
        right, limits = welch.value / n, (welch.low / n, welch.high / n)
        call.expect_close(value, right, "the value is not the efficiency of the middle of the repeats, speedup over "
                          "workers", {"that is the speedup, which is not yet an efficiency": right * n,
                                      "the quotient is upside down: faster is larger": 1 / (right * n),
                                      "the speedup is upside down: faster is larger": 1 / (right * n) / n}, CENTRE)
        call.expect(low <= value <= high, "the value is not inside its interval, low to high")
        width = (high - low) / (limits[1] - limits[0])
        call.expect(width > 0, "the interval has no width, though the repeats vary")
        call.expect(width >= NARROWEST, "the interval is too narrow for 95 %: does it have the variation of both "
                                        "lists, and as many standard errors to each side as 95 % need?")
        call.expect(width <= WIDEST, "the interval is too wide: the mean of the repeats varies less than a single one")
        call.expect(min(value - low, high - value) >= 0.2 * (limits[1] - limits[0]),
                    "the value is at the edge of its interval, which should reach to both sides of it")
    for first, second in (([100.0], [150.0, 152.0]), ([100.0, 101.0], [150.0])):
        run.expect_value_error(first, second, 2, because="one repeat shows nothing about the variation")
    return (f"the efficiency within {CENTRE:.0%}, the width of its interval between {NARROWEST:g} and {WIDEST:g} times "
            "Welch's; too few repeats are refused")


def _grade_excess(run: StudentFunction) -> str:
    # Entries of one worker and of n: first those of ideal workers.
    cases = (((0.4, 4.0, 0.0, 0.8, 0.2), (0.2, 2.0, 0.0, 0.4, 0.1), 2),
               ((0.4, 4.0, 0.0, 0.6, 0.2), (0.5, 2.2, 0.9, 0.3, 0.3), 2),
               ((0.1, 8.0, 0.0, 0.4, 0.1), (0.3, 2.1, 1.5, 0.4, 0.0), 4))
    first, second = (tuple(run.real(0.1, 4) for _ in ENTRIES) for _ in range(2))
    for one, many, n in (*cases, (first, second, run.whole(2, 8))):
        ledgers = [dict(zip(ENTRIES, seconds, strict=True)) for seconds in (one, many)]
        call = run(*ledgers, n)
        call.expect(isinstance(call.value, Mapping) and set(call.value) == set(ENTRIES),
                    "the result is a dictionary with the entries of the ledger")
        values = call.numbers([call.value[entry] for entry in ENTRIES], len(ENTRIES), "an excess is not a number")
        for entry, alone, together, value in zip(ENTRIES, one, many, values, strict=True):
            ideal = close(together, alone / n)
            call.expect(not ideal or close(value, 0), f"{entry!r} takes exactly its ideal time, so its excess is 0")
            call.expect(close(value, together - alone / n),
                        f"the excess of {entry!r} must be its seconds minus the ideal; the ideal is 1/n of one "
                        "worker's seconds")
    return "each entry's seconds above 1/n of one worker's; none for ideal workers, negative where it is below"


TASKS = {
    "efficiency": code("images_per_sec_1, images_per_sec_n, n", _grade_efficiency),
    "excess": code("one, many, n", _grade_excess),
    "bug": bug("some images are left out of an epoch", 28, (
        "every worker shuffles in an order that the others do not know, and takes half of it: some images are in "
        "both halves, others in none"), {
        "the throughput does not grow": "compare the images/s with those of one worker: what is wrong is not the "
            "speed"}, {
        17: "it makes the weights equal at the start; the broadcast would do so, too", 23: AVERAGED,
        29: "of one common order it takes every size-th image, which is right; is there one common order?",
        33: "it only collects the indices, to count them"}),
}
