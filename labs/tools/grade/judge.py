"""The judgement of one hand-in: its exercises, points, and what is odd about its records. Imports no TensorFlow."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from labs.course import exercises, hand_ins
from labs.course.exercises.code_tasks import Task
from labs.course.exercises.grading import FORMULA, Question, described
from labs.course.hand_ins import HandIn
from labs.results.records import Record
from labs.run import catalogue
from labs.run import student as student_id
from labs.run.errors import LabError
from labs.run.paths import ROOT
from labs.run.text import one_line, printable_lines
from labs.tools.grade import evidence, sandbox
from labs.tools.grade.policy import Policy

RIGHT, WRONG, NO_ANSWER, BY_HAND = "right", "wrong", "no answer", "not judged here"
TENSORFLOW = re.compile(r"(?m)^(?:import|from)\s+(?:tensorflow|keras|horovod)")
NUMBERED = re.compile(r"(?m)^(?=[\W_]{0,4}(\d{1,2})[.)][\s*])")
"""Where the answer to an open question begins: "3. ...", "**3.** ..."."""
Piece = tuple[str, str]
"""Of a student's Markdown: the number of the open question that it answers, or "", and the text."""


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
    """A hand-in that was graded, or could not be read."""

    file: str
    student: str
    """Empty if neither the zip nor its name says whose it is."""
    lab: str
    problem: str = ""
    """Why it could not be read."""
    created: str = ""
    late_percent: float = 0.0
    verdicts: tuple[Verdict, ...] = ()
    findings: tuple[str, ...] = ()
    clocks: tuple[tuple[str, frozenset[evidence.Clock]], ...] = ()
    words: tuple[Piece, ...] = ()
    """The student's own Markdown."""

    @property
    def of(self) -> float:
        """The most points that could be had; exercises that are not judged here are left out."""
        return sum(verdict.of for verdict in self.verdicts if verdict.status != BY_HAND)

    @property
    def points(self) -> float:
        """The points, less what lateness costs."""
        return round(sum(verdict.points for verdict in self.verdicts) * (1 - self.late_percent / 100), 2)


def judge(path: Path, policy: Policy, *, unsafe: bool = False) -> Graded:
    """Judge one hand-in; one that cannot be read gets a reason in place of verdicts.

    Args:
        path: The zip.
        policy: Points and lateness.
        unsafe: As `sandbox.opened`.
    """
    guess = re.search(rf"(lab\d\d_\w+?)-({student_id.ID})\.zip", path.name)
    lab, student = guess.groups() if guess else ("", "")
    try:
        hand_in = hand_ins.read(path)
        lab, student = hand_in.manifest.lab, hand_in.manifest.student
        if lab not in catalogue.lab_names():
            raise LabError(f"unknown lab {lab}")
        return _graded(hand_in, policy, unsafe)
    except LabError as problem:
        reason = one_line(problem).removeprefix(f"{path}: ")
    except Exception as problem:  # Whatever is in one hand-in, the others are graded.
        reason = f"cannot be graded: {described(problem)}"
    return Graded(str(path), student, lab, reason)


def _graded(hand_in: HandIn, policy: Policy, unsafe: bool) -> Graded:
    manifest = hand_in.manifest
    created = evidence.moment(manifest.created)
    entries: dict[str, Question | Task] = {**exercises.questions(manifest.lab), **exercises.tasks(manifest.lab)}
    verdicts = []
    for name, entry in entries.items():
        kind = "question" if isinstance(entry, Question) else "function" if entry.stub else "bug"
        status, text = _verdict(name, entry, hand_in, unsafe)
        of = policy.points[kind]
        verdicts.append(Verdict(name, status, text, of if status == RIGHT else 0.0, of))
    return Graded(str(hand_in.path), manifest.student, manifest.lab, "", manifest.created,
                  policy.late_percent(manifest.lab, created), tuple(verdicts),
                  tuple(map(one_line, evidence.findings(hand_in, created, policy.term.begins))),
                  tuple(map(evidence.clocks, hand_in.records)), tuple(_own_words(hand_in)))


def _verdict(name: str, entry: Question | Task, hand_in: HandIn, unsafe: bool) -> tuple[str, str]:
    """Return the status of an exercise, and why."""
    stub = entry.stub if isinstance(entry, Task) else None
    answer: Any = hand_in.functions.get(name) if stub else hand_in.answers.get(name)
    if answer is None:
        return NO_ANSWER, "nothing was handed in"
    try:
        if isinstance(entry, Question):
            return RIGHT, entry.grade(answer, _about(name, entry, hand_in))
        if not stub:
            return RIGHT, entry.grade(answer)
        if not entry.alone:
            return BY_HAND, "it needs two real workers: run it with exercises.check in a notebook of your own"
        if TENSORFLOW.search(answer):
            return BY_HAND, "it imports TensorFlow, which the grader does not load: run it with exercises.check"
        with sandbox.opened(answer, stub.__name__, unsafe=unsafe) as function:
            return RIGHT, entry.grade(function)
    except AssertionError as wrong:
        return WRONG, printable_lines(str(wrong).partition(FORMULA)[0].strip())
    except sandbox.EndedError as ended:
        return WRONG, f"the function failed: {ended}"
    except OSError as problem:
        return BY_HAND, str(problem)
    except Exception as problem:  # An answer or a record of another form than the grader knows.
        return WRONG, f"the answer cannot be graded from the records of this hand-in: {described(problem)}"


def _about(name: str, entry: Question, hand_in: HandIn) -> list[Record]:
    """Return the records from which the notebook judged an answer: later runs do not make it wrong.

    Raises:
        AssertionError: The hand-in has no records that the question is about.
    """
    of_lab = [record for record in hand_in.records if record["lab"] == hand_in.manifest.lab]
    used = hand_in.manifest.runs.get(name, ())
    with contextlib.suppress(AssertionError):  # Some are damaged, or the manifest names none.
        return entry.select_runs([record for record in of_lab if record["run"] in used])
    return entry.select_runs(of_lab)


def _own_words(hand_in: HandIn) -> Iterator[Piece]:
    """Yield what the student wrote in Markdown, beside the kit's own page."""
    page = ROOT / "notebooks" / f"{hand_in.manifest.lab}.ipynb"
    own = set(_pieces(json.loads(page.read_text(encoding="utf-8")))) if page.exists() else set()
    yield from (piece for piece in _pieces(hand_in.notebook or {}) if piece not in own)


def _pieces(notebook: dict[str, Any]) -> Iterator[Piece]:
    cells = notebook.get("cells")
    for cell in cells if isinstance(cells, list) else []:
        if isinstance(cell, dict) and cell.get("cell_type") == "markdown":
            source = cell.get("source")
            text = "".join(map(str, source)) if isinstance(source, list) else str(source)
            parts = ["", *NUMBERED.split(text)]
            yield from ((number, printable_lines(piece).strip())
                        for number, piece in zip(parts[::2], parts[1::2], strict=True) if piece.strip())
