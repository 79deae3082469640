"""The questions at the end of each notebook that can be judged by machine, from the student's own records.

    from labs import exercises
    one, two = exercises.runs("lab02.q1")     the records that a question is about
    exercises.check("lab02.q1", 1.7)          AssertionError, with what was wrong about it; or a line: right

`check` is a plain assert, as nbgrader and otter want it. Each lab has a module here with its `QUESTIONS`. Solutions are
not here: they are in `solutions/`, which can be left out of what students get. Imports no TensorFlow.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from labs.exercises.judge import Question, Record
from labs.results import records
from labs.run import catalogue
from labs.run.errors import LabError, quoted
from labs.run.text import printable


def check(question: str, answer: Any, store: Path | None = None) -> None:
    """Judge an answer by the student's own records, and say so in one line if it is right.

    Args:
        question: Its id: "lab04.q2".
        answer: A plain value, as the question asks for it.
        store: The results store; that of the notebooks if left out.

    Raises:
        AssertionError: The answer is wrong, and what is wrong about it; or there is no record yet, and what makes it.
        LabError: There is no such question.
    """
    asked = _question(question)
    chosen = runs(question, store)
    looked = ", ".join(printable(f"{run['lab']}/{run['run']}") for run in chosen)
    try:
        why = asked.judge(answer, chosen)
    except AssertionError as wrong:
        raise AssertionError(f"{question}: {wrong}\n  Look at: {looked}") from None
    except LookupError as lacking:
        raise AssertionError(f"{question}: {looked} cannot be judged, for want of {lacking}; run it again") from None
    print(f"{question}: right: {why}")


def show(answers: Mapping[str, Any], store: Path | None = None) -> None:
    """Print a verdict on each answer; None is one that is still to come."""
    for question, answer in answers.items():
        if answer is None:
            _question(question)
            print(f"{question}: no answer yet")
            continue
        try:
            check(question, answer, store)
        except AssertionError as wrong:
            print(wrong)


def runs(question: str, store: Path | None = None) -> list[Record]:
    """Return the records that a question is about, from the results store.

    Raises:
        AssertionError: They are not there; names the command that makes them.
        LabError: There is no such question.
    """
    asked = _question(question)
    return _picked(question, asked, records.read_all(_lab(question), store))


def _picked(question: str, asked: Question, found: list[Record]) -> list[Record]:
    """Return the records of a lab that a question is about; `runs` says what is raised."""
    try:
        return asked.runs(found)
    except AssertionError as missing:
        raise AssertionError(f"{question}: {missing}") from None
    except LookupError as lacking:
        raise AssertionError(f"{question}: a record of {_lab(question)} lacks {lacking}; move it away") from None
    except (TypeError, ValueError, ArithmeticError) as wrong:
        raise AssertionError(f"{question}: a record of {_lab(question)} holds no such figures as its runs do "
                             f"({printable(wrong)}); move it away") from None


def questions(lab: str) -> dict[str, Question]:
    """Return the questions of a lab, by id.

    Args:
        lab: Its name, its number or a unique prefix.

    Raises:
        LabError: No lab has that name.
    """
    name = catalogue.resolve(lab)
    found = importlib.import_module(f"labs.exercises.{name}").QUESTIONS
    return {f"{name.partition('_')[0]}.{number}": question for number, question in found.items()}


def markdown(lab: str) -> str:
    """Return the questions of a lab as its notebook shows them."""
    lines = [f"* **{name}** {asked.text} *Answer: {asked.answer}.*" for name, asked in questions(lab).items()]
    return "\n".join(["### Judged by your own records", "", INTRODUCTION, "", *lines])


INTRODUCTION = ("\"This run\" and \"these runs\" are those of your own results store that a question is about: "
                "`exercises.runs(id)` returns their records. Write your answers in place of `None`. A wrong one gets a "
                "hint, and never the number.")


def listing(lab: str, store: Path | None = None) -> Iterator[str]:
    """Yield the lines that tell the questions of a lab, and the runs that they are about or what makes them."""
    # Once: each bad record is named once, too.
    found = records.read_all(catalogue.resolve(lab), store)
    for name, asked in questions(lab).items():
        yield f"{name}  {asked.text}"
        yield f"    answer: {asked.answer}"
        try:
            chosen = _picked(name, asked, found)
            yield "    about: " + ", ".join(printable(f"{run['lab']}/{run['run']}") for run in chosen)
        except AssertionError as missing:
            yield "    " + str(missing).removeprefix(f"{name}: ")


def _lab(question: str) -> str:
    return catalogue.resolve(question.partition(".")[0])


def _question(question: str) -> Question:
    lab = _lab(question)
    there = questions(lab)
    name = f"{lab.partition('_')[0]}.{question.partition('.')[2]}"  # "lab2.q1" is lab02.q1.
    if name not in there:
        raise LabError(f"no question is called {quoted(question)}; there are: {', '.join(there)}")
    return there[name]
