"""A cache of decoded images that the workers of a machine share: each file is decoded once."""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import numpy as np
import psutil

from labs.datasets import decode
from labs.datasets.arrays import digest_of
from labs.run import resources
from labs.run.errors import LabError
from labs.run.paths import own_temporary_dir

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""Identifies the current boot of the machine: after a crash, flags may be on the disk without their pixels."""


class ImageCache:
    """The images of a tree as uint8 [n, size, size, 3], indexed by arrays of positions, as numpy arrays are.

    Decoded images lie in a file under TMPDIR that is shared by the workers of a machine and by later runs. The kernel
    keeps it in memory while there is space, and it can be rebuilt at any time. The file's name is a hash of every path,
    size, time and inode and of this boot of the machine, so a stale file is never read. Images beyond half of the free
    memory or disk are decoded each time.

    Args:
        root: Folder of the tree.
        paths: Paths of the images, relative to `root`.
        size: Width and height of the decoded images in pixels.
        cached: If False, no cache is read and nothing is kept: every image is decoded each time.

    Raises:
        LabError: The file cannot be created.
    """

    dtype = np.dtype(np.uint8)

    def __init__(self, root: Path, paths: Sequence[str], size: int, cached: bool = True):
        self.root, self.paths, self.shape = root, paths, (len(paths), size, size, 3)
        self._pool = ThreadPoolExecutor(resources.cores(), "decode")
        self._bytes = size * size * 3
        self._start = -(-len(paths) // mmap.PAGESIZE) * mmap.PAGESIZE  # A flag per image; pixels begin at a page.
        stamps = [read_stamp(f"{root}/{path}") for path in paths]
        name = digest_of(decode.VERSION, size, str(root), list(paths), stamps, BOOT_ID.read_text())
        self._file, content = _open(name, self._start + len(paths) * self._bytes)
        self._present, self._pixels = content[: len(paths)], content[self._start :].reshape(self.shape)
        self._capacity = _available_bytes(self._file.fileno()) // self._bytes
        if not cached:
            self._present, self._capacity = np.zeros(len(paths), np.uint8), 0

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """Return the images at these positions [k], uint8 [k, size, size, 3]."""
        rows = np.asarray(rows, np.int64)
        cached = self._present[rows] != 0
        if cached.all():
            return self._pixels[rows]
        batch = np.empty((len(rows), *self.shape[1:]), np.uint8)
        batch[cached] = self._pixels[rows[cached]]
        missing = np.flatnonzero(~cached)
        chunks = np.array_split(missing, min(len(missing), 2 * resources.cores()))
        list(self._pool.map(lambda chunk: self._decode(rows, chunk, batch), chunks))
        return batch

    def memory_of(self, rows: np.ndarray) -> np.ndarray | None:
        """Return the memory of all images, uint8 [n, size, size, 3], if the images at these positions are cached.

        It is read-only by convention: other processes read it, too.
        """
        return self._pixels if self._present[rows].all() else None

    def add(self, row: int) -> None:
        """Decode an image into the cache, if it fits; raises whatever the decoder raises."""
        self._store(row, decode.decode_file(f"{self.root}/{self.paths[row]}", self.shape[1]))

    def is_missing(self, row: int) -> bool:
        """Return whether an image is not in the cache but `add` would keep it."""
        return row < self._capacity and not self._present[row]

    def _decode(self, rows: np.ndarray, indices: np.ndarray, batch: np.ndarray) -> None:
        for i in indices:
            batch[i] = decode.read_image(f"{self.root}/{self.paths[rows[i]]}", self.shape[1])
            self._store(int(rows[i]), batch[i])

    def _store(self, row: int, pixels: np.ndarray) -> None:
        """Write the pixels, then the flag that they are present: a reader that sees the flag sees the pixels."""
        if row >= self._capacity:
            return
        try:
            # Not through the memory map: on a full disk that would kill the process; this call only fails.
            written = os.pwrite(self._file.fileno(), pixels.data, self._start + row * self._bytes)
            if written == self._bytes:
                os.pwrite(self._file.fileno(), b"\1", row)
        except OSError:  # The disk is full: images that do not fit are decoded each time.
            self._capacity = 0


def read_stamp(file: str) -> tuple[int, str]:
    """Return a file's size in bytes, and its times and inode; (-1, "") if it is missing."""
    try:
        status = os.stat(file)
    except OSError:
        return -1, ""
    # tar and `cp -p` keep modification times: two swapped folders may have the same ones, and the same sizes.
    return status.st_size, f"{status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"


def _open(name: str, length: int) -> tuple[BinaryIO, np.ndarray]:
    """Open and map the cache file at its full length; it is sparse, so unwritten images occupy no disk."""
    try:
        folder = own_temporary_dir()
        _evict(folder, name)
        file = os.fdopen(os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o600), "r+b", buffering=0)
        os.ftruncate(file.fileno(), length)
        os.utime(file.fileno())  # Last used now.
        # The map is never written to, but numpy exports memory to TensorFlow only if it is writable.
        return file, np.asarray(np.memmap(file, np.uint8, "r+"))
    except OSError as error:
        raise LabError(f"cannot keep decoded images in {error.filename or tempfile.gettempdir()} ({error.strerror}); "
                       "set TMPDIR to a folder on a disk of this machine") from error


def _evict(folder: Path, name: str) -> None:
    """Delete the caches of other trees, least recently used first, until they occupy less than the free disk space.

    A process that has such a file open keeps it; only the name is deleted.
    """
    with contextlib.suppress(FileNotFoundError):  # Another worker is doing the same.
        others = [(file.stat(), file) for file in folder.iterdir() if file.name != name]
        others.sort(key=lambda other: other[0].st_mtime)
        while sum(_occupied_bytes(status) for status, _ in others) > shutil.disk_usage(folder).free:
            others.pop(0)[1].unlink()


def _occupied_bytes(status: os.stat_result) -> int:
    return status.st_blocks * 512  # For a sparse file, less than its length.


def _available_bytes(descriptor: int) -> int:
    """Return the bytes that the open file may occupy in total."""
    disk = os.fstatvfs(descriptor)
    free = disk.f_bavail * disk.f_frsize + _occupied_bytes(os.fstat(descriptor))
    return min(psutil.virtual_memory().available, free) // 2
