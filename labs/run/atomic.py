"""Atomic file writes: temporary file, fsync, rename, fsync of the folder; and reads of regular files only."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from labs.run.errors import LabError, quoted


def explain_os_error(problem: BaseException) -> BaseException:
    """Return the error of a full disk or of a path as a LabError, and any other error unchanged."""
    if not isinstance(problem, OSError) or isinstance(problem, BrokenPipeError):
        return problem
    if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return LabError(f"cannot write {problem.filename or 'a file'}: {problem.strerror}; "
                        "free some space, or choose another --results")
    if problem.filename and problem.strerror:
        return LabError(f"{quoted(str(problem.filename))}: {problem.strerror}; check the path and its permissions")
    return problem


@contextlib.contextmanager
def with_filename(path: Path) -> Iterator[None]:
    """Add the file's name to an OSError of this block: Python's error for a failed write has none."""
    try:
        yield
    except OSError as problem:
        problem.filename = problem.filename or str(path)
        raise


def refuse_special(path: Path, option: str) -> None:
    """Refuse to replace what an option such as "--csv" names, unless it is a regular file: a rename would replace a
    device, too.

    Raises:
        LabError: The path exists and is not a regular file.
    """
    if path.exists() and not path.is_file():
        raise LabError(f"cannot write {path}: it is not a regular file; choose another {option}")


def open_regular(path: str | os.PathLike, largest: int) -> int:
    """Open a regular file for reading, and return its descriptor; refuse anything else without waiting for it.

    Args:
        path: The file.
        largest: Its largest allowed size in bytes.

    Raises:
        LabError: The path is not a regular file (a pipe may block, a device may never end), or the file is too large.
        OSError: The file does not exist, or may not be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as problem:
        if problem.errno != errno.ENXIO:  # The error for a socket.
            raise
        raise LabError(f"{path}: it is not a regular file") from None
    status = os.fstat(descriptor)
    regular = stat.S_ISREG(status.st_mode)
    if regular and status.st_size <= largest:
        return descriptor
    os.close(descriptor)
    raise LabError(f"{path}: it is " + (f"larger than {largest >> 20} MiB" if regular else "not a regular file"))


def read_bytes(path: str | os.PathLike, largest: int) -> bytes:
    """Return the content of a regular file; raises what `open_regular` raises."""
    with open(open_regular(path, largest), "rb") as file:
        return file.read()


def read_text(path: str | os.PathLike, largest: int = 4 << 20) -> str:
    """Return the text of a regular file, with marks for bytes that are not UTF-8; raises what `open_regular` does."""
    return read_bytes(path, largest).decode(errors="replace")


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _ordinary_mode(bits: int) -> int:
    """Return the mode that `open` or `mkdir` would give; that of `tempfile` would keep other users out."""
    umask = os.umask(0)
    os.umask(umask)
    return bits & ~umask


@contextlib.contextmanager
def writing(path: str | os.PathLike, mode: str = "wb") -> Iterator[IO]:
    """Open a temporary file beside `path`, and rename it to `path` if the block succeeds.

    Args:
        path: The file to make or replace; a missing folder is made.
        mode: "wb" or "w".
    """
    path = Path(path)
    with with_filename(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        try:
            text: dict[str, Any] = {} if "b" in mode else {"encoding": "utf-8", "errors": "backslashreplace"}
            with os.fdopen(descriptor, mode, **text) as file:
                yield file
                file.flush()
                os.fchmod(file.fileno(), path.stat().st_mode & 0o777 if path.exists() else _ordinary_mode(0o666))
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        _sync_folder(path.parent)


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write a text file atomically."""
    with writing(path, "w") as file:
        file.write(text)


def write_json(path: str | os.PathLike, value: Any) -> None:
    """Write a value as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=1) + "\n")


@contextlib.contextmanager
def folder(path: str | os.PathLike) -> Iterator[Path]:
    """Yield a temporary folder beside `path`, and rename it to `path` if the block succeeds.

    If another process has made `path` meanwhile, that folder stays and the new one is deleted.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent))
    try:
        yield temporary
        os.chmod(temporary, _ordinary_mode(0o777))
        try:
            os.rename(temporary, path)
        except OSError:
            if not path.is_dir():
                raise
        _sync_folder(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
