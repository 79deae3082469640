"""Atomic file writes: temporary file, fsync, rename, fsync of the folder."""

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from labs.run import terminal
from labs.run.errors import LabError

PATIENCE = 3.0
"""Seconds to wait before a message says what this process waits for."""


@contextlib.contextmanager
def writing(path: str | os.PathLike, mode: str = "wb") -> Iterator[IO]:
    """Open a temporary file beside `path`, and rename it to `path` if the block succeeds; a missing folder is made."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    text: dict[str, Any] = {} if "b" in mode else {"encoding": "utf-8", "errors": "backslashreplace"}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, mode, **text) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        descriptor = os.open(path.parent, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    except OSError as problem:  # Python's error for a failed write has no name.
        problem.filename = problem.filename or str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write a text file atomically."""
    with writing(path, "w") as file:
        file.write(text)


def write_json(path: str | os.PathLike, value: Any) -> None:
    """Write a value as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=1) + "\n")


def make_folder_once(path: Path, action: str, make: Callable[[Path], object], variable: str = "LABS_DATA") -> Path:
    """Return a folder, which the first process that needs it makes while the others wait.

    Args:
        path: The folder; its lock lies beside it. If the lock's holder is killed, the kernel releases it.
        action: What the maker does, for the message of those that wait ("downloading mnist").
        make: Writes the content into an empty folder.
        variable: The environment variable that moves the folder, for the message.

    Raises:
        LabError: The folder cannot be written, or its file system has no locks.
    """
    from filelock import FileLock, Timeout  # Here: `labs check` has to run where no package is installed.

    if path.is_dir():
        return path
    lock = FileLock(path.with_name(f"{path.name}.lock"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(PATIENCE)
        except Timeout:
            terminal.note(f"waiting for another process, which is {action}")
            lock.acquire()
        for leftover in path.parent.glob(f".{path.name}.*.part"):  # From killed processes.
            shutil.rmtree(leftover, ignore_errors=True)
        if not path.is_dir():
            fresh = path.with_name(f".{path.name}.{os.getpid()}.part")
            fresh.mkdir()
            try:
                make(fresh)
                fresh.rename(path)
            finally:
                shutil.rmtree(fresh, ignore_errors=True)
    except OSError as error:
        raise LabError(f"cannot make {path} ({error.strerror or error}); set {variable} to a folder of your own"
                       ) from error
    finally:
        lock.release()
    return path
