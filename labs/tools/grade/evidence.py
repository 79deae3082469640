"""What is odd about a hand-in: records that were changed or have impossible dates, and what several students share.

Each finding is a question for a person, not a verdict.
"""

import contextlib
import datetime
import re
import types
from collections import defaultdict
from collections.abc import Iterator, Sequence

from labs.exercises.hand_ins import HandIn
from labs.lint import rules, tables
from labs.results import records, reference
from labs.results.records import Record
from labs.run.environment import personal_seed
from labs.run.errors import plural

SLACK = datetime.timedelta(minutes=5)
"""How far the clocks of two computers may be apart."""
OF_A_PAGE = 1000
"""Seeds of pages and sweeps, with which the whole class has equal losses, are below; a student's own are above."""
FEWEST_LINES, LONGEST_CELL = 5, 100_000
"""Shorter functions are often equal by chance. To parse code of more characters might take all memory."""
TIMES, SEED = "times that are equal to the last digit: the same run, or a copy", "the seed that belongs to one of them"
DIGESTS = {"edited": "changed after the run: its contents do not match its digest",
           "none": "no digest: made by an earlier version of the kit, or the digest was removed"}


def parse_time(text: str) -> datetime.datetime | None:
    """Return a time in ISO 8601, in UTC if it has no offset; None if it is not one."""
    with contextlib.suppress(ValueError):
        time = datetime.datetime.fromisoformat(text)
        return time if time.tzinfo else time.replace(tzinfo=datetime.UTC)
    return None


def findings(hand_in: HandIn) -> Iterator[str]:
    """Yield what is odd about a hand-in: its time, its cells and its records."""
    created, student = parse_time(hand_in.manifest.created), hand_in.manifest.student
    if created is None or created > datetime.datetime.now(datetime.UTC) + SLACK:
        yield f"the time of the hand-in, {hand_in.manifest.created!r}, is in the future or unknown"
    yield from (f"left out: {problem}" for problem in hand_in.damaged)
    for name, answer in hand_in.answers.items():
        for kit in {*re.findall(r"\b(?:labs\.exercises|solutions)(?:\.\w+)+", str(answer.get("cell")))}:
            yield f"{name} mentions {kit}"
    odd: dict[str, list[str]] = defaultdict(list)
    for record in hand_in.records:
        began, name = parse_time(record["started"]), _format_name(record)
        if record.get("student", student) != student:
            odd[f"a run of {record['student']!r}, handed in by {student}"].append(name)
        if began is None or (created and began > created + SLACK):
            odd[f"began at {record['started']!r}, not before the hand-in was packed"].append(name)
        if problem := DIGESTS.get(records.digest_state(record)):
            odd[problem].append(name)
    for problem, (first, *others) in odd.items():
        yield first + f" and {plural(len(others), 'other record')}" * bool(others) + f": {problem}"
    yield from map(str, rules.judge(tables.from_records(hand_in.records)))


def _format_name(record: Record) -> str:
    return f"{record['lab']}/{record['run']}"


def copies(hand_ins: Sequence[HandIn]) -> list[tuple[tuple[str, ...], str]]:
    """Return what several students share, or students and the kit: whose it is, and a line."""
    where: dict[tuple, dict[str, str]] = defaultdict(dict)  # Kind and trace -> student -> where it is.
    seeds = {str(personal_seed(hand_in.manifest.student)): hand_in.manifest.student for hand_in in hand_ins}
    where |= {(SEED, seed): {student: "its owner"} for seed, student in seeds.items()}
    for hand_in in hand_ins:
        for kind, trace, place in _traces(hand_in):
            if kind != SEED or trace in seeds:
                where[kind, trace].setdefault(hand_in.manifest.student, place)
    for record in (record for name in reference.names() for record in reference.read_all(name)):
        for time in _times(record):
            where[TIMES, time].setdefault("the kit", _format_name(record))
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for (kind, _), owners in where.items():
        if len(owners) > 1:
            groups[kind, *sorted(owners)].append(" and ".join(dict.fromkeys(owners.values())))
    return [(tuple(students), f"{', '.join(students)}: {kind}; {len(shared)} in all, such as {shared[0]}")
            for (kind, *students), shared in sorted(groups.items()) if kind != TIMES or len(shared) > 1]


def _traces(hand_in: HandIn) -> Iterator[tuple]:
    """Yield what no other student has: its kind, itself, and where it is."""
    for record in hand_in.records:
        place, seed = _format_name(record), record["config"].get("seed")
        yield SEED, str(seed), place
        yield from ((TIMES, time, place) for time in _times(record))
        losses = tuple(round(row["loss"], 4) for row in record["history"] if isinstance(row.get("loss"), float))
        if len(losses) > 1 and isinstance(seed, int) and seed >= OF_A_PAGE:
            yield "equal losses in all epochs", (record["lab"], losses), place
    for task, answer in hand_in.answers.items():
        for code in _function_codes(str(answer.get("cell", "")), task.partition(".")[2]):
            yield "functions that are equal but for names and comments", (task, code), task


def _times(record: Record) -> list[float]:
    """Return the times of a run, without round ones, which may be equal by chance."""
    rows = [*record["history"], record["timings"], record["metrics"]]
    return [value for row in rows for name, value in row.items()
            if name.endswith("seconds") and isinstance(value, float) and value != round(value, 4)]


def _function_codes(cell: str, name: str) -> Iterator[tuple]:
    """Yield what Python makes of the longer functions of this name in a cell, without names and docstrings."""
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        for code in compile(cell[:LONGEST_CELL], "cell", "exec").co_consts:
            if isinstance(code, types.CodeType) and code.co_name == name and len(
                    {line for *_, line in code.co_lines()}) >= FEWEST_LINES:
                constants = [each.co_code if isinstance(each, types.CodeType) else each for each in code.co_consts[1:]]
                yield code.co_code, code.co_names, repr(constants)
