"""Writing that is whole or not there: temporary neighbour, fsync, rename, fsync of the folder."""

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

from labs.run.errors import LabError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def told(problem: BaseException) -> BaseException:
    """Return a full disk as a LabError, and any other problem as it is."""
    if not isinstance(problem, OSError) or problem.errno not in NO_ROOM:
        return problem
    return LabError(f"cannot write {problem.filename or 'a file'}: {problem.strerror}; "
                    "free some space, or choose another --results")


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in an OSError of this block: a write that fails does not."""
    try:
        yield
    except OSError as problem:
        problem.filename = problem.filename or str(path)
        raise


KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
         stat.S_IFSOCK: "a socket"}


def refuse_special(path: str | os.PathLike, option: str = "file") -> None:
    """Refuse to replace what is not a regular file: a rename would take the place of a device, too.

    Args:
        path: The file to write.
        option: The one that names it, such as "--csv".

    Raises:
        LabError: It exists, and is not a regular file.
    """
    try:
        kind = stat.S_IFMT(os.stat(Path(path)).st_mode)
    except OSError:  # There is none yet, or writing it will say why it cannot be.
        return
    if kind != stat.S_IFREG:
        raise LabError(f"cannot write {path}: it is {KINDS[kind]}, not a regular file; choose another {option}")


def open_regular(path: str | os.PathLike, largest: int) -> int:
    """Open a regular file for reading, and refuse anything else without waiting for it.

    Args:
        path: The file.
        largest: Bytes that it may have.

    Returns:
        Its descriptor, to be closed.

    Raises:
        LabError: It is not a regular file (a pipe gives nothing, a device never ends), or it is larger.
        OSError: There is none, or it may not be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as problem:
        if problem.errno != errno.ENXIO:  # What opening a socket gives.
            raise
        raise LabError(f"{path}: it is not a regular file") from None
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_size <= largest:
        return descriptor
    os.close(descriptor)
    special = not stat.S_ISREG(status.st_mode)
    raise LabError(f"{path}: it is " + ("not a regular file" if special else f"larger than {largest >> 20} MiB"))


def read_bytes(path: str | os.PathLike, largest: int) -> bytes:
    """Return the content of a regular file; `open_regular` says what is raised."""
    descriptor = open_regular(path, largest)
    try:
        return os.read(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _ordinary_mode(bits: int) -> int:
    """The mode that plain `open` or `mkdir` would give: the private one of `tempfile` would shut others out."""
    umask = os.umask(0)
    os.umask(umask)
    return bits & ~umask


@contextlib.contextmanager
def writing(path: str | os.PathLike, mode: str = "wb") -> Iterator[IO]:
    """Open a temporary neighbour of `path` that takes its place when the block ends well.

    Args:
        path: The file to make or to replace; its folder is made if it is missing.
        mode: "wb" or "w".
    """
    path = Path(path)
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        try:
            with os.fdopen(descriptor, mode) as file:
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
    """Write a text file whole."""
    with writing(path, "w") as file:
        file.write(text)


def write_json(path: str | os.PathLike, value: Any) -> None:
    """Write a value as indented JSON, whole."""
    write_text(path, json.dumps(value, indent=1) + "\n")


@contextlib.contextmanager
def folder(path: str | os.PathLike) -> Iterator[Path]:
    """Yield a temporary neighbour folder that is renamed to `path` when the block ends well.

    If `path` has appeared meanwhile, that one stays and the new one is dropped.
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
