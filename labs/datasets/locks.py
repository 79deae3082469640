"""Folders and files that several processes share: one process makes them, the others wait."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from labs.run import atomic, paths, terminal
from labs.run.errors import LabError

PATIENCE = 3.0
"""Seconds to wait before a message says what this process waits for."""


@contextlib.contextmanager
def exclusive(path: Path, action: str) -> Iterator[None]:
    """Hold a lock file in this block. If its holder is killed, the kernel releases it.

    Args:
        path: The lock file; its folder is made if it is missing.
        action: What the holder does, for the message of those that wait ("downloading mnist").

    Raises:
        LabError: The folder cannot be written, or its file system has no locks.
    """
    lock = FileLock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(PATIENCE)
        except Timeout:
            terminal.note(f"waiting for another process, which is {action}")
            lock.acquire()
    except OSError as error:
        variable = "LABS_CACHE" if path.is_relative_to(paths.cache_dir()) else "LABS_DATA"
        raise LabError(f"cannot lock {path} ({error.strerror or error}); set {variable} to a folder of your own"
                       ) from error
    try:
        yield
    finally:
        lock.release()


def make_folder_once(folder: Path, action: str, make: Callable[[Path], object]) -> Path:
    """Return a folder, which the first process that needs it makes while the others wait.

    It gets its name when it is complete, so a killed process leaves no half-written folder of this name.

    Args:
        folder: The folder; its lock lies beside it.
        action: What the maker does, for the message of those that wait.
        make: Writes the content into an empty folder.

    Raises:
        LabError: The lock cannot be taken (see `exclusive`).
    """
    if not folder.is_dir():
        with exclusive(folder.with_name(f"{folder.name}.lock"), action):
            for leftover in folder.parent.glob(f".{folder.name}.*.part"):  # From killed processes.
                shutil.rmtree(leftover, ignore_errors=True)
            if not folder.is_dir():
                with atomic.folder(folder) as fresh:
                    make(fresh)
    return folder
