"""Standard streams that are closed, full, or no longer read."""

from __future__ import annotations

import os
import sys


def reopen_closed() -> None:
    """Open empty standard streams for a process that was started without them (`>&-`).

    Otherwise the next files that it opens would get their descriptors, and with them what child processes print.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # The lowest free descriptor is that of the stream.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def output_failed(problem: Exception) -> bool:
    """Return whether an error came from standard output: the error names no file, and printing fails again."""
    if not isinstance(problem, OSError) or problem.filename:
        return False
    try:
        print(flush=True)
    except OSError:
        return True
    return False


def discard_output() -> None:
    """Send standard output nowhere: when Python flushes it at exit it would fail again, with a traceback."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
