"""A lock between xdist's processes: many tests at once, or one alone."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parent
"""Locked themselves, so that no lock file has to be made and removed: `flock` locks any open file or folder."""
QUEUE, RUNNING = TESTS / "conftest.py", TESTS


@contextlib.contextmanager
def hold(alone: bool) -> Iterator[None]:
    """Wait until the machine is free for a test, and hold it.

    Args:
        alone: Whether nothing else may run meanwhile.
    """
    with locked(RUNNING) as running:
        # A test that must run alone keeps the queue's lock while it waits: else others would start and it would starve.
        with locked(QUEUE) as queue:
            fcntl.flock(queue, fcntl.LOCK_EX)
            fcntl.flock(running, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


@contextlib.contextmanager
def locked(path: Path) -> Iterator[int]:
    """Open a file or folder for `flock`; release its lock at the end, even if a forked child has the file open."""
    file = os.open(path, os.O_RDONLY)
    try:
        yield file
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)
