"""The process that grades a student's function, isolated from the notebook.

    python -m labs.course.exercises.trial FOLDER

Reads the module path, the task's id, a time limit and the function from FOLDER/function.pkl. Writes the verdict to
FOLDER/result.json.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import resource
import signal
import sys
from pathlib import Path

import psutil

from labs.course import exercises
from labs.course.exercises.grading import described
from labs.course.exercises.isolated import LOADED

PRINTED = 1000
"""How many characters of the function's output are kept."""
MEMORY = 4 << 30
"""Memory that the function may use, in bytes."""


def main(folder: Path) -> None:
    """Grade the function, then exit at once, even if threads that it started still run."""
    path, task, seconds, function = pickle.loads((folder / "function.pkl").read_bytes())
    sys.path[:] = path
    function = pickle.loads(function)
    (folder / LOADED).touch()
    signal.alarm(seconds)
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + MEMORY, most))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        result = _grade(task, function)
    text = printed.getvalue()
    result["printed"] = text[:PRINTED] + f"... ({len(text):,} characters)" * (len(text) > PRINTED)
    (folder / "result.json").write_text(json.dumps(result))
    os._exit(0)


def _grade(task: str, function: object) -> dict[str, str]:
    try:
        return {"right": exercises.tasks(task.partition(".")[0])[task].grade(function)}
    except AssertionError as wrong:
        return {"wrong": str(wrong)}
    except BaseException as error:  # Comparing what it returned may raise.
        return {"wrong": f"what the function returned cannot be compared: {described(error)}"}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
