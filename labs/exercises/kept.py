"""Saved answers: `exercises.check` writes what it judges into `answers/`, beside the working copy, for the hand-in."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labs.exercises.grading import Record
from labs.run import atomic
from labs.run.environment import student_id
from labs.run.errors import LabError
from labs.run.paths import format_path, work_dir
from labs.run.text import one_line


def keep(question: str, value: dict[str, Any], about: Sequence[Record]) -> None:
    """Save an answer if the notebook is a working copy; print why, if it is not kept.

    Args:
        question: Its id: "lab04.q1".
        value: The "answer", as plain data, or the "cell" that defines the function.
        about: The records from which it was judged.
    """
    try:
        if (folder := _notebook_folder()).resolve() != work_dir().resolve():
            raise LabError(f"this notebook is in {format_path(folder)}. Open the copy in {format_path(work_dir())} "
                           "(`labs notebook` makes one) and run the cell again")
        contents = value | {"runs": [run["run"] for run in about], "student": student_id()}
        atomic.write_json(_file(question), contents)
    except Exception as problem:
        print(f"{question}: not saved for the hand-in: {one_line(problem)}")


def _notebook_folder() -> Path:
    """Return the folder in which the kernel started, that of its notebook; a cell may have changed the current one."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return Path(getattr(shell, "starting_dir", os.curdir)).absolute()


def load(question: str) -> dict[str, Any] | None:
    """Return what was saved for a question: "answer" or "cell", "runs" and "student"; None if nothing was."""
    try:
        kept = json.loads(atomic.read_text(_file(question)))
    except (OSError, ValueError):
        return None
    valid = isinstance(kept, dict) and ("answer" in kept or isinstance(kept.get("cell"), str))
    return kept if valid else None


def _file(question: str) -> Path:
    return work_dir() / "answers" / f"{question}.json"
