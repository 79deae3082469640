"""Atomic file writes: temporary file, fsync, rename, fsync of the folder."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from labs.run.errors import LabError


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


def read_bytes(path: str | os.PathLike, largest: int) -> bytes:
    """Return the content of a file.

    Raises:
        LabError: It is no regular file, or larger than so many bytes: it may come from other people.
    """
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise LabError(f"{path}: it is not a regular file")
    if status.st_size > largest:
        raise LabError(f"{path}: it is larger than {largest >> 20} MiB")
    return Path(path).read_bytes()


def read_text(path: str | os.PathLike, largest: int = 4 << 20) -> str:
    """Return the text of a file, with marks for bytes that are not UTF-8; raises what `read_bytes` raises."""
    return read_bytes(path, largest).decode(errors="replace")


@contextlib.contextmanager
def with_filename(path: Path) -> Iterator[None]:
    """Add the file's name to an OSError of this block: Python's error for a failed write has none."""
    try:
        yield
    except OSError as problem:
        problem.filename = problem.filename or str(path)
        raise


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
