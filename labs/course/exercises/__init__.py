"""Exercises: questions graded from the student's own records, functions to write, and scripts with a planted bug.

    from labs.course import exercises
    one, two = exercises.runs("lab02.q1")     the records that a question is about
    exercises.check("lab02.q1", 1.7)          prints "right", or raises AssertionError with what is wrong
    exercises.check("lab02.shard", shard)     the same for a function that the student wrote
    exercises.check("lab02.bug", {"symptom": "it never ends", "line": "line 25"})

The cell that defines a function is judged, handed in and graded: the same text, run alone in a fresh process, with a
time limit. `np` and `math` are there; whatever else it needs, the cell imports or defines. Each lab has a module here
with its `QUESTIONS`; it may have `TASKS`, which need no records. The answers are in `solutions/`, which can be left out
of what students get. Imports no TensorFlow.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from labs.course.exercises import fresh_process, kept
from labs.course.exercises.code_tasks import Task
from labs.course.exercises.grading import NoAnswerError, Question, Record, described, require, shown
from labs.course.exercises.guesses import judged
from labs.results import records
from labs.run import catalogue
from labs.run.errors import LabError, quoted
from labs.run.student import student_id
from labs.run.text import printable

__all__ = ["cell", "check", "judged", "markdown", "questions", "runs", "show", "tasks"]


def check(question: str, answer: Any, results_root: Path | None = None) -> None:
    """Grade an answer, from the student's own records or by what a function does, and print a line if it is right.

    The cell that defines a function is run alone, in a fresh process. In a working copy the answer, or the text of that
    cell, is kept for `labs handin`, right or wrong.

    Args:
        question: The id of a question or a task: "lab04.q2", "lab02.shard".
        answer: A plain value, as the question asks for it, or the student's function.
        results_root: The folder of all results; by default that of the notebooks.

    Raises:
        AssertionError: The answer is wrong, or a record is missing; names the mistake, or the command for the record.
        LabError: There is no such question.
    """
    entry, name, owner = _entry(question), _name(question), student_id() or ""
    field, value, about, reason, wrong = "answer", answer, [], "", ""
    try:
        about = _about(question, entry, results_root)
        if isinstance(entry, Task) and entry.stub:
            require(callable(answer), f"the answer is {entry.answer}, not {shown(answer)}")
            field, value = "cell", fresh_process.cell_of(answer)
        reason = grade(name, entry, value, about, owner)
    except NoAnswerError as problem:
        raise AssertionError(f"{question}: {problem}") from None
    except AssertionError as problem:
        wrong = f"{problem}" + f"\n  Look at: {_names(about)}" * bool(about)
    except Exception as error:
        wrong = f"{shown(answer)} cannot be graded from {_names(about) or 'these records'}: {described(error)}"
    if not wrong:
        print(f"{question}: right: {reason}")
    if value is not None and not callable(value):
        kept.keep(name, {field: value}, about)
    require(not wrong, f"{question}: {wrong}")


def grade(name: str, entry: Question | Task, answer: Any, about: list[Record], owner: str,
          container: Sequence[str] | None = None) -> str:
    """Return why an answer is right: `check` and `labs grade` call this alike.

    Args:
        name: Its id: "lab04.q2".
        entry: The question or task.
        answer: A plain value, or the text of the cell that defines the function.
        about: The records that the question is about.
        owner: The student's id, which decides some of the inputs of a function.
        container: As in `fresh_process.grade`.

    Raises:
        AssertionError: It is wrong; NoAnswerError if there is nothing to judge.
    """
    if isinstance(entry, Question):
        return entry.grade(answer, about)
    if entry.stub is None or entry.on_workers:
        return entry.grade(answer)
    return fresh_process.grade(name, entry, answer, owner, container)


def _about(question: str, entry: Question | Task, results_root: Path | None) -> list[Record]:
    """Return the records that a question is about; [] for a task."""
    return [] if isinstance(entry, Task) else entry.select_runs(records.read_all(_lab(question), results_root))


def show(answers: Mapping[str, Any], results_root: Path | None = None) -> None:
    """Print whether each answer is right; None means that there is no answer yet."""
    for question, answer in answers.items():
        if answer is None:
            _entry(question)
            print(f"{question}: no answer yet")
            continue
        try:
            check(question, answer, results_root)
        except AssertionError as wrong:
            print(wrong)


def runs(question: str, results_root: Path | None = None) -> list[Record]:
    """Return the records that a question is about; [] for a task.

    Args:
        question: Its id: "lab04.q2".
        results_root: The folder of all results; by default that of the notebooks.

    Raises:
        AssertionError: They are missing; names the command that makes them.
        LabError: There is no such question.
    """
    try:
        return _about(question, _entry(question), results_root)
    except AssertionError as missing:
        raise AssertionError(f"{question}: {missing}") from None


def _names(about: Sequence[Record]) -> str:
    return ", ".join(printable(f"{run['lab']}/{run['run']}") for run in about)


def questions(lab: str) -> dict[str, Question]:
    """Return the questions of a lab by id; {} if it has none.

    Args:
        lab: Its name, its number or a unique prefix.

    Raises:
        LabError: No lab has that name.
    """
    return _entries(lab, "QUESTIONS")


def tasks(lab: str) -> dict[str, Task]:
    """Return the tasks of a lab by id, functions to write and a bug to find; {} if it has none. As `questions`."""
    return _entries(lab, "TASKS")


def _entries(lab: str, name: str) -> dict[str, Any]:
    lab = catalogue.resolve(lab)
    module = f"labs.course.exercises.{lab}"
    if importlib.util.find_spec(module) is None:
        return {}
    entries = getattr(importlib.import_module(module), name, {})
    return {f"{lab.partition('_')[0]}.{key}": entry for key, entry in entries.items()}


def cell(task: str) -> str:
    """Return the code of the notebook's cell for a task: the function with its hole, and the line that grades it.

    Args:
        task: Its id: "lab02.shard".

    Raises:
        LabError: There is no such task.
    """
    stub = getattr(_entry(task), "stub", None)
    graded = f'exercises.show({{"{task}": {stub.__name__ if stub else None}}})'
    return f"{inspect.getsource(stub)}\n\n{graded}" if stub else graded


def markdown(lab: str) -> str:
    """Return the questions of a lab as its notebook shows them."""
    entries = questions(lab)
    lines = [f"* **{name}** {entry.text} *Answer: {entry.answer}.*" for name, entry in entries.items()]
    return "\n".join(["### Graded from your own records", "", INTRODUCTION.format(next(iter(entries))), "", *lines])


INTRODUCTION = ('In the questions, "this run" and "these runs" are runs in your results folder, such as those of this '
                'page. `exercises.runs("{}")` returns their records. A record is a dictionary: '
                '`record["config"]` has the settings, `record["layout"]` the workers (`size`), `record["history"]` a '
                'row per epoch (`steps`, `train_seconds` and more), and `record["timings"]["images_per_sec"]` the '
                'throughput without the first epoch. What else was measured is in `record["metrics"]` and '
                '`record["tables"]`; `list(...)` shows the names. Write your answers '
                "in place of `None`. A wrong answer gets a hint, never the right number.")


def _lab(question: str) -> str:
    return catalogue.resolve(question.partition(".")[0])


def _name(question: str) -> str:
    """Return the full id of a question: "lab04.q2" for "lab4.q2"."""
    return f"{_lab(question).partition('_')[0]}.{question.partition('.')[2]}"


def _entry(question: str) -> Question | Task:
    """Return the question or task with this id: "lab04.q2" or "lab4.q2"."""
    lab = _lab(question)
    entries: dict[str, Question | Task] = {**questions(lab), **tasks(lab)}
    name = _name(question)
    if name not in entries:
        known = f"there are: {', '.join(entries)}" if entries else f"{lab} has none"
        raise LabError(f"unknown question {quoted(question)}; {known}")
    return entries[name]
