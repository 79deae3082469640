"""Uncaught exceptions: one line for an error of the kit, in a student's own script too."""

from __future__ import annotations

import sys
from types import TracebackType

from labs.run import shadows
from labs.run.errors import ERROR_PREFIX, LabError
from labs.run.text import one_line


def show(kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:
    """Print a LabError in one line, and any other exception with its traceback; the kit's `sys.excepthook`.

    If a file hides a package of the environment, any error may come from it: it is named instead.
    """
    try:
        if issubclass(kind, Exception) and not issubclass(kind, LabError):
            shadows.refuse_packages()
    except LabError as cause:
        problem = cause
    if isinstance(problem, LabError):
        print(f"{ERROR_PREFIX}{one_line(problem)}", file=sys.stderr)
    else:
        sys.__excepthook__(kind, problem, trace)
