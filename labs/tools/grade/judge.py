"""The judgement of one hand-in: its exercises, its points, and what is odd. Imports no TensorFlow.

Each finding is a question for a person, not a verdict.
"""

import contextlib
import dataclasses
import datetime
import json
import re
import tomllib
import types
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from labs import exercises
from labs.exercises import hand_ins
from labs.exercises.code_tasks import Task
from labs.exercises.grading import FORMULA, NotInstalledError, Question
from labs.exercises.hand_ins import HandIn
from labs.lint import rules, tables
from labs.results import records
from labs.results.records import Record
from labs.run import catalogue, environment
from labs.run.errors import LabError, one_line, plural
from labs.run.paths import ROOT

RIGHT, WRONG, NO_ANSWER, BY_HAND = "right", "wrong", "no answer", "not judged here"
POLICY = ROOT / "grading/policy.toml"
DIGESTS = {"edited": "changed after the run: its contents do not match its digest",
           "none": "no digest: made by an earlier version of the kit, or the digest was removed"}
OF_A_PAGE = 1000
"""Seeds of pages and sweeps, with which the whole class has equal losses, are below; a student's own are above."""
FEWEST_LINES, LONGEST_CELL = 5, 100_000
"""Shorter functions are often equal by chance. To parse code of more characters might take all memory."""
Points = dict[Literal["question", "function", "bug"], Annotated[float, msgspec.Meta(ge=0)]]


def read_points(path: Path) -> Points:
    """Read the points of each kind of exercise from a file; LabError names the file and the problem."""
    try:
        points = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), dict[Literal["points"], Points])
        return {kind: points["points"][kind] for kind in ("question", "function", "bug")}
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, KeyError) as problem:
        raise LabError(f"{path}: {one_line(problem)} is wrong or missing; see {POLICY}") from None


class Verdict(NamedTuple):
    """On one exercise: why it is right or wrong, but never the solution."""

    exercise: str
    status: str
    text: str
    points: float
    of: float


@dataclasses.dataclass
class Graded:
    """A hand-in that was read and graded, or the `problem` why it has no points."""

    file: str
    student: str
    lab: str = ""
    hand_in: HandIn | None = None
    problem: str = ""
    verdicts: Sequence[Verdict] = ()
    findings: Sequence[str] = ()
    open_answers: Sequence[str] = ()
    points: float = 0.0
    of: float = 0.0


def read(path: Path, folder: Path) -> Graded:
    """Read a hand-in below a folder, or say why it cannot be read."""
    file = path.relative_to(folder).as_posix()
    try:
        hand_in = hand_ins.read(path)
        return Graded(file, hand_in.manifest.student, catalogue.resolve(hand_in.manifest.lab), hand_in)
    except (LabError, OSError) as problem:
        return Graded(file, file, problem=one_line(problem).removeprefix(f"{path}: "))


def judge(each: Graded, points: Points, container: Sequence[str] = ()) -> Graded:
    """Judge a hand-in that was read; without a container, students' functions run as processes of this user."""
    if not (hand_in := each.hand_in) or each.problem:
        return each
    each.verdicts = [_judge_exercise(name, entry, hand_in, points, container)
                     for name, entry in exercises.entries(each.lab).items()]
    each.points, each.of = (sum(getattr(verdict, name) for verdict in each.verdicts) for name in ("points", "of"))
    try:
        each.findings = list(map(one_line, find_odd(hand_in)))
        each.open_answers = _find_open_answers(hand_in)
    except Exception as problem:  # A notebook or a record of a form that no program has written.
        each.problem = f"cannot be graded: {type(problem).__name__}"
    return each


def _judge_exercise(name: str, entry: Question | Task, hand_in: HandIn, points: Points, container: Sequence[str]
                    ) -> Verdict:
    kind: Literal["question", "function", "bug"] = (
        "question" if isinstance(entry, Question) else "function" if entry.arguments else "bug")
    of, saved = points[kind], hand_in.answers.get(name, {})
    answer = saved.get("cell" if kind == "function" else "answer")
    if isinstance(entry, Task) and entry.on_workers:
        status, text, of = BY_HAND, "it needs two real workers: run it with exercises.check in your notebook", 0.0
    elif answer is None:
        status, text = NO_ANSWER, "nothing was handed in"
    else:
        try:
            about = _select_runs(entry, hand_in, saved.get("runs")) if isinstance(entry, Question) else []
            text = exercises.grade(name, answer, about, hand_in.manifest.student, container)
            status = RIGHT
        except NotInstalledError as missing:
            status, text = BY_HAND, f"{missing}; instructors: install it, or run the cell with exercises.check"
        except AssertionError as wrong:
            status, text = WRONG, str(wrong).partition(FORMULA)[0].strip()
        except Exception as problem:  # An answer or a record of another form than the grader knows.
            status, text = WRONG, f"it cannot be graded from the records of this hand-in: {type(problem).__name__}"
    return Verdict(name, status, text, of * (status == RIGHT), of)


def _select_runs(entry: Question, hand_in: HandIn, used: Any) -> list[Record]:
    """Return the records from which the notebook judged an answer: later runs do not make it wrong."""
    of_lab = [record for record in hand_in.records if record["lab"] == hand_in.manifest.lab]
    with contextlib.suppress(AssertionError):  # Some are damaged, or none is named.
        return entry.select_runs([record for record in of_lab if record["run"] in (used or ())])
    return entry.select_runs(of_lab)


def _find_open_answers(hand_in: HandIn) -> list[str]:
    """Return the Markdown lines that the kit's page does not have."""
    page = ROOT / "notebooks" / f"{hand_in.manifest.lab}.ipynb"
    known = {"", *_markdown(json.loads(page.read_text(encoding="utf-8")) if page.exists() else {})}
    return [line for line in _markdown(hand_in.notebook) if line not in known]


def _markdown(notebook: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the Markdown cells; links as in the kit's page, which working copies elsewhere change."""
    for cell in notebook.get("cells", ()):
        if cell.get("cell_type") == "markdown":
            yield from map(str.rstrip, "".join(cell["source"]).replace("](kit/", "](../").splitlines())


def _parse_time(text: str) -> datetime.datetime:
    """Return a time in ISO 8601, in UTC if it has no offset; the last possible one if it is no time."""
    try:
        time = datetime.datetime.fromisoformat(text)
    except ValueError:
        time = datetime.datetime.max
    return time if time.tzinfo else time.replace(tzinfo=datetime.UTC)


def find_odd(hand_in: HandIn) -> Iterator[str]:
    """Yield what is odd about a hand-in: its time, its cells and its records."""
    created, student = _parse_time(hand_in.manifest.created), hand_in.manifest.student
    if created > datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=5):  # Clocks differ.
        yield f"the time of the hand-in, {hand_in.manifest.created!r}, is in the future or unknown"
    yield from (f"left out: {problem}" for problem in hand_in.damaged)
    for name, answer in hand_in.answers.items():
        for kit in {*re.findall(r"\b(?:labs\.exercises|solutions)(?:\.\w+)+", str(answer.get("cell")))}:
            yield f"{name} mentions {kit}"
    odd: dict[str, list[str]] = defaultdict(list)
    for record in hand_in.records:
        began, name = _parse_time(record["started"]), f"{record['lab']}/{record['run']}"
        if record.get("student", student) != student:
            odd[f"a run of {record['student']!r}, handed in by {student}"].append(name)
        if began > created:
            odd[f"began at {record['started']!r}, not before the hand-in was packed"].append(name)
        if problem := DIGESTS.get(records.digest_state(record)):
            odd[problem].append(name)
    for problem, (first, *others) in odd.items():
        yield first + f" and {plural(len(others), 'other record')}" * bool(others) + f": {problem}"
    yield from map(str, rules.judge(tables.from_records(hand_in.records)))


def find_copies(hand_ins: Sequence[HandIn]) -> list[tuple[tuple[str, ...], str]]:
    """Return what several students share, which may have been copied: whose it is, and a line."""
    where: dict[tuple, dict[str, str]] = defaultdict(dict)  # Kind and trace -> student -> where it is.
    for hand_in in hand_ins:
        own = "equal seeds", environment.personal_seed(hand_in.manifest.student), "its owner"
        for kind, trace, place in [*_find_traces(hand_in), own]:
            where[kind, trace].setdefault(hand_in.manifest.student, place)
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for (kind, _), owners in where.items():
        if len(owners) > 1:
            groups[kind, *sorted(owners)].append(" and ".join(dict.fromkeys(owners.values())))
    return [(tuple(students), f"{', '.join(students)}: {kind}; {len(shared)} in all, such as {shared[0]}")
            for (kind, *students), shared in sorted(groups.items())]


def _find_traces(hand_in: HandIn) -> Iterator[tuple]:
    """Yield what no other student has: its kind, itself, and where it is."""
    for record in hand_in.records:
        place, seed = f"{record['lab']}/{record['run']}", record["config"].get("seed")
        if isinstance(seed, int) and seed >= OF_A_PAGE:
            yield "equal seeds", seed, place
            losses = tuple(round(row["loss"], 4) for row in record["history"] if isinstance(row.get("loss"), float))
            if len(losses) > 1:
                yield "equal losses in all epochs", (record["lab"], losses), place
    for task, answer in hand_in.answers.items():
        for code in _function_codes(str(answer.get("cell", "")), task.partition(".")[2]):
            yield "functions that are equal but for names and comments", (task, code), task


def _function_codes(cell: str, name: str) -> Iterator[tuple]:
    """Yield what Python makes of the longer functions of this name in a cell, without names and docstrings."""
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        for code in compile(cell[:LONGEST_CELL], "cell", "exec").co_consts:
            if isinstance(code, types.CodeType) and code.co_name == name and len(
                    {line for *_, line in code.co_lines()}) >= FEWEST_LINES:
                constants = [each.co_code if isinstance(each, types.CodeType) else each for each in code.co_consts[1:]]
                yield code.co_code, code.co_names, repr(constants)
