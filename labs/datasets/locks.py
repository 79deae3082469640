"""One worker at a time: the others wait, and say for whom."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from labs.run.errors import LabError

PATIENCE = 3.0  # Seconds to wait in silence.


@contextlib.contextmanager
def alone(path: Path, doing: str) -> Iterator[None]:
    """Hold a lock file while the block runs; the kernel frees the lock of a process that dies.

    Args:
        path: The lock file; its folder is made if it is missing.
        doing: What the holder does, for those who wait ("downloading mnist").

    Raises:
        LabError: The folder cannot be written or has no locks.
    """
    lock, note = FileLock(path), path.with_suffix(".holder")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _acquire(lock, note, doing)
        note.write_text(f"process {os.getpid()} on {platform.node()}")
    except OSError as error:
        raise LabError(f"cannot lock {path} ({error}); set LABS_DATA to a folder of your own") from error
    try:
        yield
    finally:
        lock.release()


def _acquire(lock: FileLock, note: Path, doing: str) -> None:
    try:
        lock.acquire(timeout=PATIENCE)
    except Timeout:
        holder = note.read_text() if note.exists() else "another process"
        print(f"labs: waiting for {holder}, which is {doing}", file=sys.stderr, flush=True)
        lock.acquire()


def sweep(path: Path) -> None:
    """Remove what killed makers of the folder `path` left beside it; for the holder of its lock only."""
    for left_over in path.parent.glob(f".{path.name}.*.part"):
        shutil.rmtree(left_over, ignore_errors=True)
