"""What is odd about a hand-in: records that were changed or have impossible dates, and what several students share.

Each finding is a question for a person, not a verdict.
"""

from __future__ import annotations

import contextlib
import datetime
import re
import types
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from labs.exercises.hand_ins import HandIn
from labs.lint import rules, tables
from labs.results import records, reference
from labs.results.records import Record
from labs.run.environment import personal_seed
from labs.run.text import plural

SLACK = datetime.timedelta(minutes=5)
"""How far the clocks of two computers may be apart."""
KIT = "the kit"
"""The owner of the saved runs that come with the kit."""
OF_A_PAGE = 1000
"""Seeds of pages and sweeps, with which the whole class has equal losses, are below; a student's own are above."""
FEWEST_LINES, LONGEST_CELL = 5, 100_000
"""Shorter functions are often equal by chance. To parse code of more characters might take all memory."""
Trace = tuple[Any, ...]
"""What no other run or cell has; its kind stands first."""
SHARED = {"times": "times that are equal to the last digit: the same run, or a copy",
          "losses": "equal losses in all epochs", "seed": "the seed that belongs to one of them",
          "function": "functions that are equal but for names and comments"}
"""What students may share, and what is said about it."""
GRADER = re.compile(r"\b(?:labs\.exercises|solutions)(?:\.\w+)+")
DIGESTS = {"edited": "changed after the run: its contents do not match its digest",
           "none": "no digest: made by an earlier version of the kit, or the digest was removed"}


def parse_time(text: str) -> datetime.datetime | None:
    """Return a time in ISO 8601, in UTC if it has no offset; None if it is not one."""
    with contextlib.suppress(ValueError):
        time = datetime.datetime.fromisoformat(text)
        return time if time.tzinfo else time.replace(tzinfo=datetime.UTC)
    return None


def findings(hand_in: HandIn, created: datetime.datetime | None, term: datetime.datetime | None) -> Iterator[str]:
    """Yield what is odd about a hand-in.

    Args:
        hand_in: The hand-in.
        created: When it was packed.
        term: When the course began; None: unknown.
    """
    if created is None:
        yield f"the time of the hand-in is {hand_in.manifest.created!r}, so lateness is unknown"
    elif created > datetime.datetime.now(datetime.UTC) + SLACK:
        yield f"the time of the hand-in is {hand_in.manifest.created}, in the future"
    yield from (f"left out: {problem}" for problem in hand_in.damaged)
    yield from (f"{name} mentions {kit}" for name, answer in hand_in.answers.items()
                for kit in sorted({*GRADER.findall(str(answer.get("cell")))}))
    about: dict[str, list[str]] = defaultdict(list)
    for record in hand_in.records:
        for problem in _problems(record, hand_in.manifest.student, created, term):
            about[problem].append(_format_name(record))
    for problem, (first, *others) in about.items():
        yield first + f" and {plural(len(others), 'other record')}" * bool(others) + f": {problem}"
    yield from map(str, rules.judge(tables.from_records(hand_in.records)))


def _format_name(record: Record) -> str:
    return f"{record['lab']}/{record['run']}"


def _problems(record: Record, student: str, created: datetime.datetime | None,
              term: datetime.datetime | None) -> Iterator[str]:
    """Yield what is odd about the owner, the digest and the dates of a record."""
    if record.get("student", student) != student:
        yield f"a run of {record['student']!r}, handed in by {student}"
    if problem := DIGESTS.get(records.digest_state(record)):
        yield problem
    began, seconds = parse_time(record["started"]), record["timings"].get("total_seconds") or 0
    if began is None:
        yield f"started at {record['started']!r}, which is not a time"
    elif created and began + datetime.timedelta(seconds=min(seconds, 1e8)) > created + SLACK:
        yield f"began at {record['started']}, and ended after the hand-in was packed"
    elif term and began < term:
        yield f"began at {record['started']}, before the term"


def copies(hand_ins: Sequence[HandIn]) -> list[tuple[tuple[str, ...], str]]:
    """Return what several students share, or students and the kit: whose it is, and a line.

    Args:
        hand_ins: One per student and lab.
    """
    where: dict[Trace, dict[str, str]] = defaultdict(dict)  # Trace -> student -> where it is.
    for trace, student, place in (*_students_traces(hand_ins), *_kits_traces()):
        where[trace].setdefault(student, place)
    groups: dict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    for trace, owners in where.items():
        if len(owners) > 1:
            groups[trace[0], *sorted(owners)].append(owners)
    return [(tuple(students), f"{', '.join(students)}: {SHARED[kind]}; such as "
             + " and ".join([*dict.fromkeys(shared[0].values())][:2]) + f" ({len(shared)} in all)" * (len(shared) > 1))
            for (kind, *students), shared in sorted(groups.items()) if kind != "times" or len(shared) > 1]


def _students_traces(hand_ins: Sequence[HandIn]) -> Iterator[tuple[Trace, str, str]]:
    """Yield each trace with its student and where it is."""
    seeds = {personal_seed(hand_in.manifest.student): hand_in.manifest.student for hand_in in hand_ins}
    for hand_in in hand_ins:
        student = hand_in.manifest.student
        for record in hand_in.records:
            yield from ((trace, student, _format_name(record)) for trace in _traces(record))
            if (seed := record["config"].get("seed")) in seeds:
                yield ("seed", seed), seeds[seed], "its owner"
                yield ("seed", seed), student, _format_name(record)
        for task, answer in hand_in.answers.items():
            yield from ((("function", task, code), student, task)
                        for code in _function_codes(str(answer.get("cell", "")), task.partition(".")[2]))


def _kits_traces() -> Iterator[tuple[Trace, str, str]]:
    """Yield the times of the kit's saved runs; their losses are those of whoever runs the page."""
    for name in reference.names():
        for record in reference.read_all(name):
            yield from ((trace, KIT, f"{name}/{record['run']}") for trace in _traces(record) if trace[0] == "times")


def _traces(record: Record) -> Iterator[Trace]:
    """Yield what no other run has: each time, unless it is round, such as a typed one; the losses of all epochs."""
    rows = [*record["history"], record["timings"], record["metrics"]]
    for value in (value for row in rows for name, value in row.items() if name.endswith("seconds")):
        if isinstance(value, float) and value != round(value, 4):
            yield "times", value
    losses = [round(row["loss"], 4) for row in record["history"] if isinstance(row.get("loss"), float)]
    seed = record["config"].get("seed")
    if len(losses) > 1 and isinstance(seed, int) and seed >= OF_A_PAGE:
        yield "losses", record["lab"], *losses


def _function_codes(cell: str, name: str) -> Iterator[Trace]:
    """Yield what Python makes of the longer functions of this name in a cell."""
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        for code in compile(cell[:LONGEST_CELL], "cell", "exec").co_consts:
            if isinstance(code, types.CodeType) and code.co_name == name and _count_lines(code) >= FEWEST_LINES:
                yield _without_names(code)


def _count_lines(code: types.CodeType) -> int:
    return len({line for *_, line in code.co_lines()})


def _without_names(code: types.CodeType) -> Trace:
    """Return the code of a function without the names of its variables and without its docstring."""
    constants = [_without_names(each) if isinstance(each, types.CodeType) else repr(each) for each in code.co_consts]
    return code.co_code, code.co_names, *constants[1:]
