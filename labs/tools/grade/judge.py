"""The judgement of one hand-in: its exercises, its points, and what is odd about its records. Imports no TensorFlow."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from labs import exercises
from labs.exercises import hand_ins
from labs.exercises.code_tasks import Task
from labs.exercises.grading import FORMULA, NotInstalledError, Question, format_error
from labs.exercises.hand_ins import HandIn
from labs.results.records import Record
from labs.run import catalogue
from labs.run.errors import LabError
from labs.run.paths import ROOT
from labs.run.text import one_line
from labs.tools.grade import evidence
from labs.tools.grade.policy import Policy

RIGHT, WRONG, NO_ANSWER, BY_HAND = "right", "wrong", "no answer", "not judged here"


@dataclasses.dataclass(frozen=True)
class Verdict:
    """On one exercise."""

    exercise: str
    status: str
    text: str
    """Why; never the solution."""
    points: float
    of: float


@dataclasses.dataclass(frozen=True)
class Graded:
    """A hand-in that was read and graded, or could not be."""

    file: str
    student: str
    lab: str
    problem: str = ""
    """Why it has no points: it could not be read, or another one has the same student and lab."""
    hand_in: HandIn | None = None
    late_percent: float = 0.0
    verdicts: tuple[Verdict, ...] = ()
    findings: tuple[str, ...] = ()

    @property
    def of(self) -> float:
        """The most points that could be had."""
        return sum(verdict.of for verdict in self.verdicts)

    @property
    def points(self) -> float:
        """The points, less what lateness costs."""
        return round(sum(verdict.points for verdict in self.verdicts) * (1 - self.late_percent / 100), 2)


def read(path: Path) -> Graded:
    """Read a hand-in, or say why it cannot be read. Not for several threads: msgspec prepares its types here."""
    try:
        hand_in = hand_ins.read(path)
        if hand_in.manifest.lab in catalogue.lab_names():
            return Graded(str(path), hand_in.manifest.student, hand_in.manifest.lab, hand_in=hand_in)
        problem = f"unknown lab {hand_in.manifest.lab}"
    except (LabError, OSError) as error:
        problem = one_line(error).removeprefix(f"{path}: ")
    return Graded(str(path), "", "", problem)


def judge(each: Graded, policy: Policy, container: Sequence[str] | None) -> Graded:
    """Judge a hand-in that was read; without a container, students' functions run as processes of this user."""
    if not each.hand_in:
        return each
    try:
        created = evidence.parse_time(each.hand_in.manifest.created)
        findings = tuple(map(one_line, evidence.findings(each.hand_in, created, policy.term.get("begins"))))
        return dataclasses.replace(each, late_percent=policy.late_percent(each.lab, created), findings=findings,
                                   verdicts=tuple(_verdicts(each.hand_in, policy, container)))
    except Exception as problem:
        return dataclasses.replace(each, problem=f"cannot be graded: {format_error(problem)}")


def _verdicts(hand_in: HandIn, policy: Policy, container: Sequence[str] | None) -> Iterator[Verdict]:
    for name, entry in exercises.entries(hand_in.manifest.lab).items():
        kind = "question" if isinstance(entry, Question) else "function" if entry.arguments else "bug"
        if isinstance(entry, Task) and entry.on_workers:
            yield Verdict(name, BY_HAND, "it needs two real workers: run it with exercises.check in a notebook of your "
                          "own", 0.0, 0.0)
            continue
        status, text = _judge_exercise(name, entry, hand_in, container)
        of = getattr(policy.points, kind)
        yield Verdict(name, status, text, of if status == RIGHT else 0.0, of)


def _judge_exercise(name: str, entry: Question | Task, hand_in: HandIn,
                    container: Sequence[str] | None) -> tuple[str, str]:
    """Return the status of an exercise, and why."""
    saved = hand_in.answers.get(name, {})
    answer: Any = saved.get("cell" if isinstance(entry, Task) and entry.arguments else "answer")
    if answer is None:
        return NO_ANSWER, "nothing was handed in"
    try:
        about = _select_runs(entry, hand_in, saved.get("runs")) if isinstance(entry, Question) else []
        return RIGHT, exercises.grade(name, entry, answer, about, hand_in.manifest.student, container)
    except NotInstalledError as missing:
        return BY_HAND, f"{missing}; instructors: install it, or run the cell with exercises.check"
    except AssertionError as wrong:
        return WRONG, str(wrong).partition(FORMULA)[0].strip()
    except Exception as problem:  # An answer or a record of another form than the grader knows.
        return WRONG, f"the answer cannot be graded from the records of this hand-in: {format_error(problem)}"


def _select_runs(entry: Question, hand_in: HandIn, used: Any) -> list[Record]:
    """Return the records from which the notebook judged an answer: later runs do not make it wrong."""
    of_lab = [record for record in hand_in.records if record["lab"] == hand_in.manifest.lab]
    with contextlib.suppress(AssertionError):  # Some are damaged, or none is named.
        return entry.select_runs([record for record in of_lab if record["run"] in (used or ())])
    return entry.select_runs(of_lab)


def open_answers(hand_in: HandIn) -> str:
    """Return the lines that the student wrote in Markdown: those that the kit's page does not have."""
    page = ROOT / "notebooks" / f"{hand_in.manifest.lab}.ipynb"
    known = {*_markdown(json.loads(page.read_text(encoding="utf-8")))} if page.exists() else set()
    return "\n".join(line for line in _markdown(hand_in.notebook) if line not in known).strip()


def _markdown(notebook: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the Markdown cells; links as in the kit's page, which working copies elsewhere change."""
    cells = notebook.get("cells")
    for cell in cells if isinstance(cells, list) else []:
        if isinstance(cell, dict) and cell.get("cell_type") == "markdown":
            source = cell.get("source")
            text = "".join(map(str, source)) if isinstance(source, list) else str(source)
            yield from (line.rstrip() for line in text.replace("](kit/", "](../").splitlines())
