"""What is odd about a hand-in: records that were changed or have impossible dates, and what several students share.

Each finding is a question for a person, not a verdict.
"""

from __future__ import annotations

import ast
import builtins
import datetime
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from labs.exercises.hand_ins import HandIn
from labs.lint import checker
from labs.results import records, reference
from labs.results.records import Record
from labs.run.environment import personal_seed
from labs.run.text import plural

SLACK = datetime.timedelta(minutes=5)
"""How far the clocks of two computers may be apart."""
KIT = "the kit"
"""The owner of the saved runs that come with the kit."""
OF_A_PAGE = 1000
"""Seeds of pages and sweeps are below; those of students' own runs are nearly always above."""
FEWEST_LINES, LONGEST_CELL = 5, 100_000
"""Shorter functions are often equal by chance. Code of more characters might take all memory to parse."""
Trace = tuple[Any, ...]
"""What no other run or cell has; its kind stands first."""
SHARED = {"times": "times that are equal to the last digit: the same run, or a copy",
          "losses": "equal losses in all epochs", "seed": "the seed that belongs to one of them",
          "function": "functions that are equal but for names and comments"}
"""What students may share, and what is said about it."""
GRADER = re.compile(r"\b(?:labs\.exercises|solutions)(?:\.\w+)+")


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
    elif created > datetime.datetime.now(datetime.UTC) + SLACK:
        yield f"the time of the hand-in is {hand_in.manifest.created}, in the future"
    yield from (f"left out: {problem}" for problem in hand_in.damaged.values())
    if hand_in.others:
        yield f"{plural(len(hand_in.others), 'file')} beside the hand-in, not read, such as {hand_in.others[0]}"
    yield from (f"{name} mentions {kit}" for name, cell in hand_in.functions.items()
                for kit in sorted({*GRADER.findall(cell)}))
    about: dict[str, list[str]] = defaultdict(list)
    for record in hand_in.records:
        for problem in (*_identity(record, hand_in.manifest.student), *_dates(record, created, term)):
            about[problem].append(_run(record))
    for problem, (first, *others) in about.items():
        more = f" and {plural(len(others), 'other record')}" if others else ""
        yield f"{first}{more}: {problem}"
    yield from map(str, checker.check_records(hand_in.records))


def _run(record: Record) -> str:
    return f"{record['lab']}/{record['run']}"


def _identity(record: Record, student: str) -> Iterator[str]:
    if record.get("student", student) != student:
        yield f"a run of {record['student']!r}, handed in by {student}"
    states = {"edited": "changed after the run: its contents do not match its digest",
              "none": "no digest: made by an earlier version of the kit, or the digest was removed"}
    if problem := states.get(records.digest_state(record)):
        yield problem


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


def copies(hand_ins: Sequence[HandIn]) -> list[tuple[tuple[str, ...], str]]:
    """Return what several students share, or students and the kit: whose it is, and a line.

    Args:
        hand_ins: One per student and lab.
    """
    where: dict[Trace, dict[str, str]] = defaultdict(dict)  # Trace -> student -> where it is.
    suspect: set[Trace] = set()
    for trace, student, place, honest in (*_of_students(hand_ins), *_of_the_kit()):
        where[trace].setdefault(student, place)
        suspect |= set() if honest else {trace}
    groups: dict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    for trace in (trace for trace, owners in where.items() if len(owners) > 1 and trace in suspect):
        groups[trace[0], *sorted(where[trace])].append(where[trace])
    return [(tuple(students), f"{', '.join(students)}: {SHARED[kind]}; such as "
             + " and ".join([*dict.fromkeys(shared[0].values())][:2]) + f" ({len(shared)} in all)" * (len(shared) > 1))
            for (kind, *students), shared in sorted(groups.items()) if kind != "times" or len(shared) > 1]


def _of_students(hand_ins: Sequence[HandIn]) -> Iterator[tuple[Trace, str, str, bool]]:
    """Yield each trace with its student, where it is, and whether a run of a page left it."""
    seeds = {personal_seed(hand_in.manifest.student): hand_in.manifest.student for hand_in in hand_ins}
    for hand_in in hand_ins:
        student = hand_in.manifest.student
        for record in hand_in.records:
            for trace in _traces(record):
                yield trace, student, _run(record), trace[0] == "losses" and _is_of_page(record, student)
            if _seed(record) in seeds:
                yield ("seed", _seed(record)), seeds[_seed(record)], "its owner", False
                yield ("seed", _seed(record)), student, _run(record), False
        for task, cell in hand_in.functions.items():
            if (text := _without_names(cell)).count("\n") + 1 >= FEWEST_LINES:
                yield ("function", task, text), student, task, False


def _of_the_kit() -> Iterator[tuple[Trace, str, str, bool]]:
    """Yield the times of the kit's saved runs; their losses are those of whoever runs the page."""
    for name in reference.names():
        for record in reference.read_all(name):
            yield from ((trace, KIT, f"{name}/{record['run']}", False) for trace in _traces(record)
                        if trace[0] == "times")


def _traces(record: Record) -> Iterator[Trace]:
    """Yield what no other run has: each time, unless it is round, such as a typed one; the losses of all epochs."""
    rows = [*record["history"], record["timings"], record["metrics"]]
    for value in (value for row in rows for name, value in row.items() if name.endswith("seconds")):
        if isinstance(value, float) and value != round(value, 4):
            yield "times", value
    losses = [round(row["loss"], 4) for row in record["history"] if isinstance(row.get("loss"), float)]
    if len(losses) > 1:
        yield "losses", record["lab"], *losses


def _is_of_page(record: Record, student: str) -> bool:
    """Return whether a record is unchanged, not another student's, and of a seed with which the whole class runs."""
    return (_seed(record) < OF_A_PAGE and records.digest_state(record) == "intact"
            and record.get("student", student) == student)


def _seed(record: Record) -> int:
    seed = record["config"].get("seed")
    return seed if isinstance(seed, int) else 0


class _Names(ast.NodeTransformer):
    """Numbers the names of a cell in the order in which they occur."""

    def __init__(self) -> None:
        self.numbers: dict[str, str] = {}

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for field in ("id", "arg", "name"):
            name = getattr(node, field, None)
            if isinstance(name, str) and not hasattr(builtins, name):
                setattr(node, field, self.numbers.setdefault(name, f"v{len(self.numbers)}"))
        return super().generic_visit(node)


def _without_names(cell: str) -> str:
    """Return the code of a cell without its names, comments, docstrings, imports and checks; "" if it is not code."""
    try:
        body = ast.parse(cell[:LONGEST_CELL]).body
        kept = [node for node in body if not isinstance(node, ast.Import | ast.ImportFrom)
                and not (isinstance(node, ast.Expr) and ast.unparse(node).startswith("exercises."))]
        for node in (each for statement in kept for each in ast.walk(statement)):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
        return ast.unparse(_Names().visit(ast.Module(kept, [])))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
