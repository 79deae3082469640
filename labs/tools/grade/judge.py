"""The judgement of one hand-in: its exercises, its points, and what is odd about its records. Imports no TensorFlow."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from labs import exercises
from labs.exercises import hand_ins
from labs.exercises.code_tasks import Task
from labs.exercises.grading import FORMULA, NotInstalledError, Question, described
from labs.exercises.hand_ins import HandIn
from labs.results.records import Record
from labs.run import catalogue
from labs.run.environment import STUDENT_ID
from labs.run.errors import LabError
from labs.run.paths import ROOT
from labs.run.text import one_line
from labs.tools.grade import evidence
from labs.tools.grade.policy import Policy

RIGHT, WRONG, NO_ANSWER, BY_HAND = "right", "wrong", "no answer", "not judged here"
READING = threading.Lock()
"""msgspec prepares a type when it is first used, and crashes if two threads do so at once."""
NUMBERED = re.compile(r"[\W_]{0,4}(\d{1,2})[.)][\s*]")
"""Where the answer to an open question begins: "3. ...", "**3.** ..."."""


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


def judge(path: Path, policy: Policy, container: Sequence[str] | None) -> Graded:
    """Judge one hand-in; one that cannot be read gets a reason in place of verdicts.

    Args:
        path: The zip.
        policy: Points and lateness.
        container: The command that runs a command in a container; None runs students' functions without one.
    """
    guess = re.search(rf"(lab\d\d_\w+?)-({STUDENT_ID}?)(?:\.\w+)*$", path.name)
    lab, student = guess.groups() if guess else ("", "")
    try:
        with READING:
            hand_in = hand_ins.read(path)
        lab, student = hand_in.manifest.lab, hand_in.manifest.student
        if lab not in catalogue.lab_names():
            raise LabError(f"unknown lab {lab}")
        created = evidence.moment(hand_in.manifest.created)
        findings = tuple(map(one_line, evidence.findings(hand_in, created, policy.term.begins)))
        return Graded(str(path), student, lab, "", hand_in, policy.late_percent(lab, created),
                      tuple(_verdicts(hand_in, policy, container)), findings)
    except LabError as problem:
        reason = one_line(problem).removeprefix(f"{path}: ")
    except Exception as problem:  # Whatever is in one hand-in, the others are graded.
        reason = f"cannot be graded: {described(problem)}"
    return Graded(str(path), student, lab, reason)


def _verdicts(hand_in: HandIn, policy: Policy, container: Sequence[str] | None) -> Iterator[Verdict]:
    lab = hand_in.manifest.lab
    for name, entry in exercises.entries(lab).items():
        kind = "question" if isinstance(entry, Question) else "function" if entry.stub else "bug"
        if isinstance(entry, Task) and entry.on_workers:
            yield Verdict(name, BY_HAND, "it needs two real workers: run it with exercises.check in a notebook of your "
                          "own", 0.0, 0.0)
            continue
        status, text = _verdict(name, entry, hand_in, container)
        of = getattr(policy.points, kind)
        yield Verdict(name, status, text, of if status == RIGHT else 0.0, of)


def _verdict(name: str, entry: Question | Task, hand_in: HandIn, container: Sequence[str] | None) -> tuple[str, str]:
    """Return the status of an exercise, and why."""
    is_function = isinstance(entry, Task) and entry.stub
    answer: Any = hand_in.functions.get(name) if is_function else hand_in.answers.get(name)
    if answer is None:
        return NO_ANSWER, "nothing was handed in"
    try:
        about = _about(name, entry, hand_in) if isinstance(entry, Question) else []
        return RIGHT, exercises.grade(name, entry, answer, about, hand_in.manifest.student, container)
    except NotInstalledError as missing:
        return BY_HAND, f"{missing}; instructors: install it, or run the cell with exercises.check"
    except AssertionError as wrong:
        return WRONG, str(wrong).partition(FORMULA)[0].strip()
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


def open_answers(hand_in: HandIn) -> dict[str, str]:
    """Return the lines that the student wrote in Markdown, by the number of the open question; "" for others."""
    page = ROOT / "notebooks" / f"{hand_in.manifest.lab}.ipynb"
    given = json.loads(page.read_text(encoding="utf-8")) if page.exists() else {}
    known = {line for cell in _markdown(given) for line in cell}
    written: dict[str, list[str]] = {}
    for cell in _markdown(hand_in.notebook or {}):
        number = ""
        for line in cell:
            found = NUMBERED.match(line)
            number = found[1] if found else number
            if line not in known:
                written.setdefault(number, []).append(line)
    return {number: text for number, lines in written.items() if (text := "\n".join(lines).strip())}


def _markdown(notebook: dict[str, Any]) -> Iterator[list[str]]:
    """Yield the lines of each Markdown cell; links as in the kit's page, which working copies elsewhere change."""
    cells = notebook.get("cells")
    for cell in cells if isinstance(cells, list) else []:
        if isinstance(cell, dict) and cell.get("cell_type") == "markdown":
            source = cell.get("source")
            text = "".join(map(str, source)) if isinstance(source, list) else str(source)
            yield [line.rstrip() for line in text.replace("](kit/", "](../").splitlines()]
