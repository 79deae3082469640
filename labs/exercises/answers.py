"""Saved answers: `exercises.check` writes what it judges into `work/answers/`, for `labs handin`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labs.exercises.grading import Record
from labs.run import atomic
from labs.run.environment import student_id
from labs.run.paths import work_dir
from labs.run.text import one_line


def save(question: str, value: dict[str, Any], about: Sequence[Record]) -> None:
    """Save an answer; print why, if it is not saved.

    Args:
        question: Its id: "lab04.q1".
        value: The "answer", as plain data, or the "cell" that defines the function.
        about: The records from which it was judged.
    """
    try:
        contents = value | {"runs": [run["run"] for run in about], "student": student_id()}
        atomic.write_json(_file(question), contents)
    except Exception as problem:
        print(f"{question}: not saved for the hand-in: {one_line(problem)}")


def load(question: str) -> dict[str, Any] | None:
    """Return what was saved for a question: "answer" or "cell", "runs" and "student"; None if nothing was."""
    try:
        saved = json.loads(_file(question).read_text(encoding="utf-8"))
        return saved if {"runs", "student"} <= saved.keys() else None
    except (OSError, ValueError, AttributeError):
        return None


def _file(question: str) -> Path:
    return work_dir() / "answers" / f"{question}.json"
