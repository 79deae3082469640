"""Exercises: questions graded from the student's own records, functions to write, and scripts with a planted bug.

    from labs import exercises
    one, two = exercises.runs("lab02.q1")     the records that a question is about
    exercises.check("lab02.q1", 1.7)          prints "right", or raises AssertionError with what is wrong
    exercises.check("lab02.shard", shard)     the same for a function that the student wrote

The cell that defines a function is judged, handed in and graded: the same text, run alone in a fresh process, with a
time limit. Each lab has a module here with its `QUESTIONS`, and its `TASKS`, which need no records.
"""

import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from labs.exercises import child, fresh_process
from labs.exercises.code_tasks import Task
from labs.exercises.grading import NoAnswerError, Question, Record, judged, require, shorten
from labs.results import records
from labs.run import atomic, catalogue
from labs.run.environment import student_id
from labs.run.errors import LabError, one_line, quoted
from labs.run.paths import work_dir

__all__ = ["check", "entries", "judged", "load_answer", "runs", "show"]


def entries(lab: str) -> dict[str, Question | Task]:
    """Return the questions and tasks of a lab by id; LabError if no lab has this name, number or unique prefix."""
    lab = catalogue.resolve(lab)
    module = importlib.import_module(f"labs.exercises.{lab}")
    return {f"{lab[:5]}.{key}": entry for key, entry in {**module.QUESTIONS, **module.TASKS}.items()}


def check(question: str, answer: Any, results_root: Path | None = None) -> None:
    """Grade an answer, from the student's own records or by what a function does, and print a line if it is right.

    AssertionError names the mistake, or the command for a missing record. The answer, or the text of the cell that
    defines the function, is saved for `labs handin`, right or wrong.
    """
    entry, kept, about, wrong = _find(question), {}, [], ""
    try:
        if isinstance(entry, Task) and entry.arguments:
            kept["cell"] = value = fresh_process.find_cell(answer, question.partition(".")[2])
        else:
            kept["answer"] = value = child.loads(json.dumps(child.plain(answer)))  # As `labs grade` will read it.
        about = runs(question, results_root)
        print(f"{question}: right: {grade(question, value, about, student_id() or '')}")
    except NoAnswerError as problem:
        earlier = "; not kept: the hand-in has your earlier cell" * bool(load_answer(question))
        raise AssertionError(f"{question}: {problem}{earlier}") from None
    except AssertionError as problem:
        names = shorten(", ".join(f"{run['lab']}/{run['run']}" for run in about))
        wrong = f"{problem}" + f"\n  Look at: {names}" * bool(about)
    except Exception as error:  # The other answers of this cell are still judged.
        wrong = f"{shorten(str(answer))} cannot be graded: {shorten(f'{type(error).__name__}: {error}')}"
    if kept:
        atomic.write_json(_path(question), kept | {"runs": [run["run"] for run in about]})
    require(not wrong, f"{question}: {wrong}")


def grade(question: str, answer: Any, about: list[Record], owner: str, container: Sequence[str] = ()) -> str:
    """Return why an answer is right, or raise AssertionError: `check` and `labs grade` call this alike.

    The answer is plain data, or the text of a function's cell, which runs behind the words of `container`. Its owner,
    the student, decides some of the inputs.
    """
    entry = _find(question)
    if isinstance(entry, Question):
        return entry.grade(answer, about)
    if not entry.arguments or entry.on_workers:
        return entry.grade(answer)
    return fresh_process.grade(question, entry, answer, owner, container)


def show(answers: Mapping[str, Any], results_root: Path | None = None) -> None:
    """Print whether each answer is right; None means that there is no answer yet."""
    for question, answer in answers.items():
        try:
            if answer is None:
                print(f"{_find(question) and question}: no answer yet")
            else:
                check(question, answer, results_root)
        except AssertionError as wrong:
            print(wrong)


def runs(question: str, results_root: Path | None = None) -> list[Record]:
    """Return the records that a question is about; AssertionError names the command that makes missing ones."""
    entry = _find(question)
    lab = catalogue.resolve(question[:5])
    return [] if isinstance(entry, Task) else entry.select_runs(records.read_all(lab, results_root))


def load_answer(question: str) -> dict[str, Any] | None:
    """Return what was saved for a question: "answer" or "cell", and "runs"; None if nothing was."""
    path = _path(question)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _path(question: str) -> Path:
    return work_dir() / f"answers/{question}.json"


def _find(question: str) -> Question | Task:
    known = entries(question.partition(".")[0])
    if question not in known:
        raise LabError(f"unknown question {quoted(question)}; there are: {', '.join(known)}")
    return known[question]
