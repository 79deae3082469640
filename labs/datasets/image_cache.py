"""Pictures by position: each file is decoded once on a machine, whichever worker comes first."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import platform
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import numpy as np
import psutil

from labs.datasets import decode
from labs.run.errors import LabError
from labs.run.paths import temporary_dir


class Images:
    """The pictures of a tree as uint8 [n, size, size, 3], indexed with arrays of positions, as numpy is.

    What was decoded lies in a file under TMPDIR that the workers of a machine share, and its next runs too.
    The kernel holds it in memory as long as there is room. It can be made again at any time. Its name stands
    for every path, size and time and for this boot of the machine: it never outlives what it is made of.

    Args:
        root: Folder of the tree.
        paths: Of the pictures, relative to it.
        size: Side of the pictures in pixels.
        memory: Bytes the file may grow to; by default half of what is free in memory, and on the disk. 0: nothing is
            kept, and nothing that was kept is used; every picture is decoded each time.
        threads: That decode at a time; one per core by default.

    Raises:
        LabError: There is no place for the file.
    """

    dtype = np.dtype(np.uint8)

    def __init__(
        self,
        root: str | os.PathLike,
        paths: Sequence[str],
        size: int,
        memory: int | None = None,
        threads: int | None = None,
    ):
        self.root, self.paths = Path(root), paths
        self.shape = (len(paths), size, size, 3)
        self._bytes = size * size * 3
        sizes, times = zip(*decode.stamps(self.root, paths), strict=True)
        self.digest = _digest(decode.READER, size, list(paths), sizes)
        """Of names, sizes and settings: equal on two machines that have the same pictures."""
        name = _digest(self.digest, self.root, times, _boot()).hex()
        self._start = -(-len(paths) // mmap.PAGESIZE) * mmap.PAGESIZE  # Marks first; pixels begin at a page.
        self._file, content = _open(name, self._start + len(paths) * self._bytes)
        self._limit = _room(self._file.fileno(), memory) // self._bytes
        self._present, self._pixels = content[: len(paths)], content[self._start :].reshape(self.shape)
        if memory == 0:
            self._present = np.zeros(len(paths), np.uint8)
        self._threads = threads or decode.cores()
        self._pool = ThreadPoolExecutor(self._threads, "decode")

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def decoded(self) -> int:
        """The number of pictures that need no decoding any more."""
        return int(np.count_nonzero(self._present))

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """Return the pictures at these positions [k], uint8 [k, size, size, 3]."""
        rows = np.asarray(rows, np.int64)
        there = self._present[rows] != 0
        if there.all():
            return self._pixels[rows]
        batch = np.empty((len(rows), *self.shape[1:]), np.uint8)
        batch[there] = self._pixels[rows[there]]
        missing = np.flatnonzero(~there)
        parts = np.array_split(missing, min(len(missing), 2 * self._threads))
        list(self._pool.map(lambda places: self._decode(rows, places, batch), parts))
        return batch

    def kept(self, rows: np.ndarray) -> np.ndarray | None:
        """Return the memory of all pictures, uint8 [n, size, size, 3], if those at these positions are decoded.

        To be read only: other processes read there too.
        """
        return self._pixels if self._present[rows].all() else None

    def take(self, row: int) -> None:
        """Decode a picture for later; if it could not be kept, only to see that it can be decoded.

        Raises:
            Exception: What the decoder raises.
        """
        if row < self._limit:
            self._keep(row, decode.decode(self._path(row), self.shape[1]))
        else:
            decode.decode(self._path(row), 1)

    def missing(self, row: int) -> bool:
        """Whether a picture is still to be decoded, and could be kept then."""
        return row < self._limit and not self._present[row]

    def _path(self, row: int) -> str:
        return f"{self.root}/{self.paths[row]}"

    def _decode(self, rows: np.ndarray, places: np.ndarray, batch: np.ndarray) -> None:
        for place in places:
            batch[place] = decode.read(self._path(rows[place]), self.shape[1])
            self._keep(int(rows[place]), batch[place])

    def _keep(self, row: int, pixels: np.ndarray) -> None:
        """Write the pixels, then the mark that they are there: whoever sees the mark sees the pixels."""
        if row >= self._limit:
            return
        try:
            # Not through the map: on a full disk that would kill the process, where this merely fails.
            written = os.pwrite(self._file.fileno(), pixels.data, self._start + row * self._bytes)
            if written == self._bytes:
                os.pwrite(self._file.fileno(), b"\1", row)
        except OSError:  # The disk is full: what does not fit is decoded each time.
            self._limit = 0


def _digest(*things) -> bytes:
    return hashlib.blake2b(repr(things).encode(), digest_size=16).digest()


def _boot() -> str:
    """This machine since its last start: after a crash, marks may be on the disk without their pixels."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text() if boot.exists() else platform.node()


def _open(name: str, length: int) -> tuple[BinaryIO, np.ndarray]:
    """Open the file of decoded pictures and map it: of full length, but what is not written takes no room."""
    folder = temporary_dir() / f"labs-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            raise PermissionError(1, "it belongs to somebody else")
        _make_room(folder, name)
        file = os.fdopen(os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o600), "r+b", buffering=0)
        os.ftruncate(file.fileno(), length)
        os.utime(file.fileno())  # Last used now.
        # Nobody writes through the map; but numpy shares with others only what could be written.
        return file, np.asarray(np.memmap(file, np.uint8, "r+"))
    except OSError as error:
        raise LabError(f"cannot keep decoded pictures in {folder} ({error.strerror}); "
                       "set TMPDIR to a folder on a disk of this machine") from error


def _make_room(folder: Path, name: str) -> None:
    """Drop the files of other trees, the longest unused first, until they fill less than is free on the disk.

    Who has such a file open keeps it; only the name goes.
    """
    with contextlib.suppress(FileNotFoundError):  # Another worker is at it too.
        others = [(file.stat(), file) for file in folder.iterdir() if file.name != name]
        others.sort(key=lambda other: other[0].st_mtime)
        while sum(_taken(status) for status, _ in others) > shutil.disk_usage(folder).free:
            others.pop(0)[1].unlink()


def _taken(status: os.stat_result) -> int:
    return status.st_blocks * 512  # Of a sparse file, less than its length.


def _room(descriptor: int, memory: int | None) -> int:
    """Bytes that the open file may take in all."""
    if memory is not None:
        return memory
    disk = os.fstatvfs(descriptor)
    free = disk.f_bavail * disk.f_frsize + _taken(os.fstat(descriptor))
    return min(psutil.virtual_memory().available, free) // 2
