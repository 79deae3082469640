"""Folders that several processes share: one process makes each, the others wait."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout

from labs.run import terminal
from labs.run.errors import LabError

PATIENCE = 3.0
"""Seconds to wait before a message says what this process waits for."""


def make_folder_once(folder: Path, action: str, make: Callable[[Path], object], variable: str = "LABS_DATA") -> Path:
    """Return a folder, which the first process that needs it makes while the others wait.

    It gets its name when it is complete, so a killed process leaves no half-written folder of this name.

    Args:
        folder: The folder; its lock lies beside it. If its holder is killed, the kernel releases it.
        action: What the maker does, for the message of those that wait ("downloading mnist").
        make: Writes the content into an empty folder.
        variable: The environment variable that moves the folder, for the message.

    Raises:
        LabError: The folder cannot be written, or its file system has no locks.
    """
    lock = FileLock(folder.with_name(f"{folder.name}.lock"))
    try:
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(PATIENCE)
            except Timeout:
                terminal.note(f"waiting for another process, which is {action}")
                lock.acquire()
            for leftover in folder.parent.glob(f".{folder.name}.*.part"):  # From killed processes.
                shutil.rmtree(leftover, ignore_errors=True)
            if not folder.is_dir():
                fresh = folder.with_name(f".{folder.name}.{os.getpid()}.part")
                fresh.mkdir()
                try:
                    make(fresh)
                    fresh.rename(folder)
                finally:
                    shutil.rmtree(fresh, ignore_errors=True)
    except OSError as error:
        raise LabError(f"cannot make {folder} ({error.strerror or error}); set {variable} to a folder of your own"
                       ) from error
    finally:
        lock.release()
    return folder
