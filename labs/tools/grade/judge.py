"""The judgement of one hand-in: its exercises, its points and lateness. Imports no TensorFlow."""

import contextlib
import dataclasses
import datetime
import json
import math
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from labs import exercises
from labs.exercises import hand_ins
from labs.exercises.code_tasks import Task
from labs.exercises.grading import FORMULA, NotInstalledError, Question
from labs.exercises.hand_ins import HandIn
from labs.results.records import Record
from labs.run import catalogue
from labs.run.errors import LabError, one_line
from labs.run.paths import ROOT
from labs.tools.grade import evidence

RIGHT, WRONG, NO_ANSWER, BY_HAND = "right", "wrong", "no answer", "not judged here"
POLICY = ROOT / "grading/policy.toml"
Points = Annotated[float, msgspec.Meta(ge=0)]


class KindPoints(msgspec.Struct, forbid_unknown_fields=True):
    """The points of an exercise, by its kind."""

    question: Points
    function: Points
    bug: Points


class Policy(msgspec.Struct, forbid_unknown_fields=True):
    """Points by kind, what lateness costs, and dates by lab, from one small file."""

    points: KindPoints
    late: dict[Literal["grace_hours", "percent_per_day", "most_percent"], Points] = {}
    due: dict[str, Annotated[datetime.datetime, msgspec.Meta(tz=True)]] = {}

    def late_percent(self, lab: str, created: datetime.datetime | None) -> float:
        """Return the percentage that a hand-in loses; 0 if its lab has no date or its own time is unknown."""
        late = created - self.due[lab] if created and lab in self.due else datetime.timedelta()
        if late <= datetime.timedelta(hours=self.late.get("grace_hours", 0)):
            return 0.0
        days = math.ceil(late / datetime.timedelta(days=1))
        return min(self.late.get("percent_per_day", 0) * days, self.late.get("most_percent", 100), 100)


def read_policy(path: Path) -> Policy:
    """Read a policy; a lab in [due] may have a short name. LabError names the file and the problem."""
    try:
        policy = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Policy)
        due = {catalogue.resolve(name): moment for name, moment in policy.due.items()}
        if len(due) < len(policy.due):
            raise LabError("[due] names a lab twice")
        policy.due = due
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, LabError) as problem:
        raise LabError(f"{path}: {problem}; see {POLICY}") from None
    return policy


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
    lab: str
    hand_in: HandIn | None = None
    problem: str = ""
    late_percent: float = 0.0
    verdicts: Sequence[Verdict] = ()
    findings: Sequence[str] = ()
    written: str = ""
    """The open answers."""
    points: float = 0.0
    """Less what lateness costs."""
    of: float = 0.0


def read(path: Path, folder: Path) -> Graded:
    """Read a hand-in below a folder, or say why it cannot be read."""
    file = path.relative_to(folder).as_posix()
    try:
        hand_in = hand_ins.read(path)
        return Graded(file, hand_in.manifest.student, catalogue.resolve(hand_in.manifest.lab), hand_in)
    except (LabError, OSError) as problem:
        return Graded(file, file, "", problem=one_line(problem).removeprefix(f"{path}: "))


def judge(each: Graded, policy: Policy, container: Sequence[str] = ()) -> Graded:
    """Judge a hand-in that was read; without a container, students' functions run as processes of this user."""
    if not each.hand_in or each.problem:
        return each
    for name, entry in exercises.entries(each.lab).items():
        status, text = _judge_exercise(name, entry, each.hand_in, container)
        kind = "question" if isinstance(entry, Question) else "function" if entry.arguments else "bug"
        of = getattr(policy.points, kind)
        of *= not (isinstance(entry, Task) and entry.on_workers)
        each.verdicts = [*each.verdicts, Verdict(name, status, text, of * (status == RIGHT), of)]
    each.late_percent = policy.late_percent(each.lab, evidence.parse_time(each.hand_in.manifest.created))
    each.of = sum(verdict.of for verdict in each.verdicts)
    each.points = round(sum(verdict.points for verdict in each.verdicts) * (1 - each.late_percent / 100), 2)
    try:
        each.findings = list(map(one_line, evidence.findings(each.hand_in)))
        each.written = _open_answers(each.hand_in)
    except Exception as problem:  # A notebook or a record of a form that no program has written.
        each.problem = f"cannot be graded: {type(problem).__name__}"
    return each


def _judge_exercise(name: str, entry: Question | Task, hand_in: HandIn, container: Sequence[str]) -> tuple[str, str]:
    """Return the status of an exercise, and why."""
    if isinstance(entry, Task) and entry.on_workers:
        return BY_HAND, "it needs two real workers: run it with exercises.check in a notebook of your own"
    saved = hand_in.answers.get(name, {})
    answer = saved.get("cell" if isinstance(entry, Task) and entry.arguments else "answer")
    if answer is None:
        return NO_ANSWER, "nothing was handed in"
    try:
        about = _select_runs(entry, hand_in, saved.get("runs")) if isinstance(entry, Question) else []
        return RIGHT, exercises.grade(name, answer, about, hand_in.manifest.student, container)
    except NotInstalledError as missing:
        return BY_HAND, f"{missing}; instructors: install it, or run the cell with exercises.check"
    except AssertionError as wrong:
        return WRONG, str(wrong).partition(FORMULA)[0].strip()
    except Exception as problem:  # An answer or a record of another form than the grader knows.
        return WRONG, f"the answer cannot be graded from the records of this hand-in: {type(problem).__name__}"


def _select_runs(entry: Question, hand_in: HandIn, used: Any) -> list[Record]:
    """Return the records from which the notebook judged an answer: later runs do not make it wrong."""
    of_lab = [record for record in hand_in.records if record["lab"] == hand_in.manifest.lab]
    with contextlib.suppress(AssertionError):  # Some are damaged, or none is named.
        return entry.select_runs([record for record in of_lab if record["run"] in (used or ())])
    return entry.select_runs(of_lab)


def _open_answers(hand_in: HandIn) -> str:
    """Return the lines that the student wrote in Markdown: those that the kit's page does not have."""
    page = ROOT / "notebooks" / f"{hand_in.manifest.lab}.ipynb"
    known = {*_markdown(json.loads(page.read_text(encoding="utf-8")))} if page.exists() else set()
    return "\n".join(line for line in _markdown(hand_in.notebook) if line not in known).strip()


def _markdown(notebook: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the Markdown cells; links as in the kit's page, which working copies elsewhere change."""
    for cell in notebook.get("cells", ()):
        if cell.get("cell_type") == "markdown":
            yield from map(str.rstrip, "".join(cell["source"]).replace("](kit/", "](../").splitlines())
