"""Atomic file writes: temporary file, fsync, rename, fsync of the folder."""

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from filelock import FileLock, Timeout

from labs.run import terminal
from labs.run.errors import LabError

PATIENCE = 3.0
"""Seconds to wait before a message says what this process waits for."""


@contextlib.contextmanager
def writing(path: str | os.PathLike, mode: str = "wb") -> Iterator[IO]:
    """Open a temporary file beside `path`, and rename it to `path` if the block succeeds; a missing folder is made."""
    path = Path(path)
    temporary = _temporary(path)
    text: dict[str, Any] = {} if "b" in mode else {"encoding": "utf-8", "errors": "backslashreplace"}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, mode, **text) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except BaseException as problem:
        temporary.unlink(missing_ok=True)
        if isinstance(problem, OSError):  # Python's error for a failed write has no name.
            problem.filename = problem.filename or str(path)
        raise


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write a text file atomically."""
    with writing(path, "w") as file:
        file.write(text)


def write_json(path: str | os.PathLike, value: Any) -> None:
    """Write a value as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=1) + "\n")


@contextlib.contextmanager
def folder(path: str | os.PathLike) -> Iterator[Path]:
    """Yield a temporary folder beside `path`, and rename it to `path` if the block succeeds and none is there yet."""
    path = Path(path)
    temporary = _temporary(path)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        try:
            os.rename(temporary, path)
        except OSError:
            if not path.is_dir():
                raise
        _sync_folder(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def read_bytes(path: str | os.PathLike, largest: int) -> bytes:
    """Return the content of a file of other people; raise LabError if it is too large, or a device without an end."""
    if not os.path.isfile(path):
        raise LabError(f"{path}: it is not a regular file")
    with open(path, "rb") as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise LabError(f"{path}: it is larger than {largest >> 20} MiB")
    return content


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


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
            with folder(path) as fresh:
                make(fresh)
    except OSError as error:
        raise LabError(f"cannot make {path} ({error.strerror or error}); set {variable} to a folder of your own"
                       ) from error
    finally:
        lock.release()
    return path
