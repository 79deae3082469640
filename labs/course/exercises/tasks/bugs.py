"""Scripts with a planted bug, `debugging/labNN.py`: the student names the symptom and the line."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any

from labs.course.exercises.grading import grade_choice, grade_entries
from labs.course.exercises.tasks.functions import Task

RIGHT = ""
"""In place of what is wrong about a choice: nothing is."""


def find(lab: str, *, symptoms: Mapping[str, str], lines: Mapping[int, str], reason: str, how: str = "",
         before: str = "") -> Task:
    """Return the task to find the bug of a script.

    Args:
        lab: "lab02": the script is debugging/lab02.py, the repaired one solutions/debugging/lab02.py.
        symptoms: What the script might do wrong, each with what is wrong about that choice; RIGHT for the one it does.
        lines: Numbers of lines, each with what is wrong about that choice; RIGHT for the line with the bug.
        reason: Why that line has that symptom.
        how: What else to run, as a sentence.
        before: What to know before, as sentences.
    """
    choices = ", ".join(f'`"{symptom}"`' for symptom in symptoms)
    begin = f"{before} " if before else ""
    text = (f"{begin}Type `labs launch 2 debugging/{lab}.py` in a terminal, in the project's "
            f"folder: two workers run the script, which has one bug. {how or 'If it hangs, press Ctrl-C.'} "
            "Open the script in an editor that shows line numbers. "
            f"What is the symptom ({choices}), and which line causes it ({', '.join(map(str, lines))})?")
    numbered = {f"line {number}": wrong for number, wrong in lines.items()}
    graders: dict[str, Callable[[Any], str]] = {"symptom": functools.partial(_grade, symptoms, reason),
                                                "line": lambda answer: _grade(numbered, reason, _line(answer))}
    form = f'`{{"symptom": ..., "line": "line {min(lines)}"}}`'
    return Task(text, form, lambda answer: grade_entries(answer, graders))


def _line(answer: Any) -> Any:
    """Return "line 31" for 31, "31" and "Line 31", and anything else as it is."""
    is_number = isinstance(answer, Integral) and not isinstance(answer, bool)
    number = re.fullmatch(r"\s*(?:line)?\s*(\d+)\s*", str(answer) if is_number or isinstance(answer, str) else "", re.I)
    return f"line {number[1]}" if number else answer


def _grade(choices: Mapping[str, str], reason: str, answer: Any) -> str:
    wrong = {choice: hint for choice, hint in choices.items() if hint != RIGHT}
    return grade_choice(answer, choices.keys() - wrong.keys(), wrong, reason)
