"""Unpack untrusted archives: no path outside the folder, no links, no decompression bombs."""

from __future__ import annotations

import functools
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from labs.run.errors import LabError

Member = tuple[str, bool, int, Callable[[], object]]  # Name, whether a plain file or folder, bytes, extract function.


def unpack(archive: Path, folder: Path, max_files: int, max_bytes: int) -> None:
    """Unpack a zip or a tar (compressed or not); copy any other file.

    Args:
        archive: The file.
        folder: An existing folder; the caller deletes it if this raises.
        max_files: Number of members above which the archive is refused.
        max_bytes: Total unpacked size in bytes above which the archive is refused.

    Raises:
        LabError: The archive is damaged, or it holds something that no data set needs.
    """
    files = total = 0
    try:
        for name, plain, size, extract in _members(archive, folder):
            files, total = files + 1, total + size
            if not plain:
                raise LabError(f"{archive.name} holds {name!r}, which is a link or a device: refused")
            if not is_inside(name):
                raise LabError(f"{archive.name} holds {name!r}, which would lie outside its folder: refused")
            if files > max_files or total > max_bytes:
                limits = f"{max_files:,} files or {max_bytes:,} bytes"
                raise LabError(f"{archive.name} unpacks to more than {limits}: refused")
            extract()
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError) as error:
        raise LabError(f"{archive.name} is damaged or not an archive ({error}); fetch it again") from error
    except OSError as error:  # Of the archive; any other is of the disk.
        if error.errno is None or isinstance(error, (FileExistsError, NotADirectoryError, IsADirectoryError)):
            raise LabError(f"{archive.name} is damaged ({error}); fetch it again") from error
        raise


def is_inside(name: str) -> bool:
    """Return whether a member of this name would be unpacked inside the folder."""
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\\" not in name and "\0" not in name


def _members(archive: Path, folder: Path) -> Iterator[Member]:
    if archive.suffix == ".zip":
        yield from _zip_members(archive, folder)
    elif ".tar" in archive.suffixes:
        yield from _tar_members(archive, folder)
    else:
        yield archive.name, True, archive.stat().st_size, functools.partial(shutil.copy, archive, folder)


def _tar_members(archive: Path, folder: Path) -> Iterator[Member]:
    with tarfile.open(archive) as tar:
        for member in tar:
            extract = functools.partial(tar.extract, member, folder, filter="data")
            yield member.name, member.isreg() or member.isdir(), member.size, extract
        # tarfile takes a damaged header for the end of the archive; the real end is a block of zeros.
        tar.fileobj.seek(tar.offset)
        if tar.fileobj.read(tarfile.BLOCKSIZE) != tarfile.NUL * tarfile.BLOCKSIZE:
            raise tarfile.ReadError("it is truncated")


def _zip_members(archive: Path, folder: Path) -> Iterator[Member]:
    with zipfile.ZipFile(archive) as file:
        for member in file.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)  # 0 if the packing program recorded none.
            plain = kind in (0, stat.S_IFREG, stat.S_IFDIR)
            yield member.filename, plain, member.file_size, functools.partial(file.extract, member, folder)
