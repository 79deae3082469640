"""The process that grades a student's function, isolated from the notebook.

    python -m labs.course.exercises.trial FOLDER

Reads the module path, the task's id, a time limit and the function from FOLDER/function.pkl. Writes the verdict to
FOLDER/result.json.
"""

from __future__ import annotations

import contextlib
import ctypes
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
PR_SET_CHILD_SUBREAPER = 36
"""Of Linux's prctl: orphaned descendants become children of this process."""


class Short(io.TextIOBase):
    """A stream that keeps the beginning of what is written to it."""

    def __init__(self) -> None:
        self.kept, self.length = "", 0

    def write(self, text: str) -> int:
        """Keep the text, or as much of it as there is space for."""
        self.kept += text[:PRINTED - len(self.kept)]
        self.length += len(text)
        return len(text)


def main(folder: Path) -> None:
    """Grade the function, and end at once with all threads and processes that it has started.

    If the function ends this process or exceeds the time limit, its processes in other sessions survive.
    """
    path, task, seconds, function = pickle.loads((folder / "function.pkl").read_bytes())
    sys.path[:] = path
    function = pickle.loads(function)
    (folder / LOADED).touch()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _limit(seconds)
    printed = sys.stdout = sys.stderr = Short()
    result = {"task": task, **_grade(task, function)}
    if printed.length:
        result["printed"] = printed.kept + f"... ({printed.length:,} characters)" * (printed.length > PRINTED)
    (folder / "result.json").write_text(json.dumps(result))
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    os._exit(0)


def _grade(task: str, function: object) -> dict[str, str]:
    try:
        return {"right": exercises.tasks(task.partition(".")[0])[task].grade(function)}
    except AssertionError as wrong:
        return {"wrong": str(wrong)}
    except BaseException as error:  # Comparing what it returned may raise.
        return {"wrong": f"what the function returned cannot be compared: {described(error)}"}


def _limit(seconds: float) -> None:
    """Limit this process's time and memory, and discard its own output."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    pages, most = int(Path("/proc/self/statm").read_text().split()[0]), resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit if most == resource.RLIM_INFINITY else min(limit, most), most))
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
