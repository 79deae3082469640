"""What is odd about records: changed after the run, impossible clocks, and clocks that another student's record has.

Each finding is a question for a person, not a verdict.
"""

from __future__ import annotations

import datetime
import functools
import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence

from labs.course.hand_ins import HandIn
from labs.course.plausibility import checker, rules
from labs.measure import throughput
from labs.results import records, reference
from labs.results.records import Record
from labs.run.paths import ROOT
from labs.run.text import plural

FEWEST = 2
"""How many clocks two records must share to be called copies. One that is equal to the last digit is rare already."""
Clock = float | tuple[float, ...]
"""A time that no other run has, of an epoch, the whole run or the ledger; or the times of all epochs relative to the
first, which stay if all are multiplied by a number."""
SLACK = datetime.timedelta(minutes=5)
"""How far the clocks of two computers may be apart."""


def clocks(record: Record) -> tuple[str, frozenset[Clock]]:
    """Return a record's run and its clocks; round times, such as typed ones, are left out."""
    rows = [*record["history"], record["timings"], record["metrics"]]
    seconds = (value for row in rows for name, value in row.items() if name.endswith("seconds"))
    measured: set[Clock] = {value for value in seconds if isinstance(value, float) and value != round(value, 4)}
    epochs = [row.get("train_seconds") for row in record["history"]]
    if len(epochs) > 2 and all(isinstance(each, float) and each > 0 for each in epochs):
        measured.add(tuple(float(f"{each / epochs[0]:.7g}") for each in epochs[1:]))
    return f"{record['lab']}/{record['run']}", frozenset(measured)


def moment(text: str) -> datetime.datetime | None:
    """Return a time in ISO 8601, in UTC if it has no offset; None if it is not one."""
    try:
        time = datetime.datetime.fromisoformat(text)
        return time if time.tzinfo else time.replace(tzinfo=datetime.UTC)
    except ValueError:
        return None


def findings(hand_in: HandIn, created: datetime.datetime | None, term: datetime.datetime | None) -> Iterator[str]:
    """Yield what is odd about a hand-in's records.

    Args:
        hand_in: The hand-in.
        created: When it was packed.
        term: When the course began; None: unknown.
    """
    if created is None:
        yield f"the time of the hand-in is {hand_in.manifest.created!r}, so lateness is unknown"
    yield from (f"left out: {problem}" for problem in hand_in.damaged.values())
    about: dict[str, list[str]] = defaultdict(list)
    for record in hand_in.records:
        owner = hand_in.manifest.student
        for problem in (*_identity(record, owner), *_history(record), *_dates(record, created, term)):
            about[problem].append(f"{record['lab']}/{record['run']}")
    for problem, (first, *others) in about.items():
        more = f" and {plural(len(others), 'other record')}" if others else ""
        yield f"{first}{more}: {problem}"
    if hand_in.records:
        yield from map(str, rules.apply(checker.recorded(hand_in.records), rules.RECORDED)[0])


def _identity(record: Record, student: str) -> Iterator[str]:
    if record.get("student", student) != student:
        yield f"a run of {record['student']!r}, handed in by {student}"
    states = {"edited": "changed after the run: its contents do not match its digest",
              "none": "no digest: made by an earlier version of the kit, or the digest was removed"}
    if problem := states.get(records.digest_state(record)):
        yield problem


def _history(record: Record) -> Iterator[str]:
    """Yield where a record's timings contradict its epochs."""
    history, timings = record["history"], record["timings"]
    try:
        spent = sum(row.get("train_seconds", 0.0) + row.get("val_seconds", 0.0) for row in history)
        expected = {"first_epoch_seconds": history[0]["train_seconds"] if history else None,
                    "seconds_per_epoch": throughput.seconds_per_epoch(history),
                    "images_per_sec": throughput.images_per_sec(history)}
        whole = timings.get("total_seconds")
        if whole is not None and spent > max(whole, record["metrics"].get("wall_seconds", 0.0)):  # Lab 12's counts all.
            yield (f"its epochs took {spent:.1f} s, the whole run {whole:.1f} s: a resumed run, whose clock begins at "
                   "its last start, or edited")
        for name, value in expected.items():
            stated = timings.get(name)
            if stated != value and (stated is None or value is None or abs(stated - value) > 1e-6 * abs(value)):
                yield f"{name} is {stated}, but its epochs give {value}: edited"
    except (LookupError, TypeError, ArithmeticError) as problem:
        yield f"its history cannot be checked: {type(problem).__name__}: {problem}"


def _dates(record: Record, created: datetime.datetime | None, term: datetime.datetime | None) -> Iterator[str]:
    began = moment(record["started"])
    if began is None:
        yield f"started at {record['started']!r}, which is not a time"
        return
    seconds = record["timings"].get("total_seconds")
    if created and began + datetime.timedelta(seconds=min(seconds or 0, 1e8)) > created + SLACK:
        yield f"began at {record['started']}, and ended after the hand-in was packed"
    if term and began < term:
        yield f"began at {record['started']}, before the term"


@functools.cache
def _saved() -> dict[Clock, str]:
    """Return the times of the kit's own saved runs, each with the run."""
    runs = sorted(path.parent for path in reference.FOLDER.rglob("record.json"))
    return {clock: str(run.relative_to(ROOT)) for run in runs for clock in clocks(records.read(run))[1]
            if isinstance(clock, float)}


def copies(by_student: Sequence[tuple[str, Sequence[tuple[str, frozenset[Clock]]]]]) -> dict[str, list[str]]:
    """Return findings on records that two students have, or that are the kit's own, by student.

    Args:
        by_student: Each student's id, and what `clocks` returns for their records.
    """
    found: dict[str, list[str]] = defaultdict(list)
    owners: dict[Clock, dict[str, str]] = defaultdict(dict)  # Clock -> student -> run.
    for student, runs in by_student:
        for run, measured in runs:
            saved = [_saved()[clock] for clock in measured if clock in _saved()]
            if len(saved) >= FEWEST:
                found[student].append(f"{run} has the times of the kit's own {saved[0]}")
                continue
            for clock in measured:
                owners[clock].setdefault(student, run)
    shared: dict[tuple[tuple[str, str], tuple[str, str]], list[Clock]] = defaultdict(list)
    for clock, run_of in owners.items():
        for pair in itertools.combinations(sorted(run_of.items()), 2):
            shared[pair].append(clock)
    for ((student, run), (other, its)), both in sorted(shared.items()):
        equal = [clock for clock in both if isinstance(clock, float)]
        if len(equal) >= FEWEST:
            what = f"{len(equal)} times equal to the last digit, such as {equal[0]!r} s"
        elif len(equal) < len(both):
            what = "the times of all epochs in the same proportion"
        else:
            continue
        found[student].append(f"{run} and {other}'s {its}: {what}: the same run, or a copy")
        found[other].append(f"{its} and {student}'s {run}: {what}: the same run, or a copy")
    return found
