"""The images of a tree, checked and decoded once for all workers of a machine."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from pathlib import Path

import numpy as np
import psutil
from tqdm import tqdm

from labs.datasets import decode
from labs.datasets.arrays import digest_of
from labs.datasets.index import Index
from labs.datasets.locks import make_folder_once
from labs.run import resources
from labs.run.errors import LabError
from labs.run.paths import own_temporary_dir
from labs.run.text import printable

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""Identifies the current boot of the machine: after a crash, a file may be on the disk without its pixels."""
PIXELS, CHECKED = "pixels.npy", "checked.json"
THRESHOLD = 0.1
"""Share of undecodable images above which something is wrong with the whole data set."""


class ImageCache:
    """The images of a tree as uint8 [n, size, size, 3], indexed by arrays of positions, as numpy arrays are.

    The first process decodes every image, because a truncated file has an intact header, into a folder under TMPDIR.
    The other workers of the machine and later runs map its file. The folder's name is a hash of every path, size, time
    and inode and of this boot of the machine, so a stale one is never read, and it can be deleted at any time. Images
    beyond half of the free memory or disk are decoded each time.

    Args:
        index: The images.
        size: Width and height of the decoded images in pixels.
        cached: If False, every image is decoded each time.

    Raises:
        LabError: More than a tenth of the images cannot be decoded, or the folder cannot be made.
    """

    dtype = np.dtype(np.uint8)

    def __init__(self, index: Index, size: int, cached: bool = True):
        self.root, self.paths, self.shape = index.root, index.paths, (len(index), size, size, 3)
        self._cores = resources.cores()
        self._pool = ThreadPoolExecutor(self._cores, "decode")
        folder = self._open_folder()
        # It is never written to, but numpy exports memory to TensorFlow only if it is writable.
        self._pixels = np.asarray(np.load(folder / PIXELS, mmap_mode="r+"))[: None if cached else 0]
        checked = json.loads((folder / CHECKED).read_text())
        self.bad: dict[str, str] = checked["bad"]
        """The paths of the images that cannot be decoded, each with the reason."""
        self.digest: str = checked["digest"]
        """Of the names and contents of all files: the same on all machines; it changes when a file is replaced."""
        if len(self.bad) > THRESHOLD * len(self):
            path, fault = next(iter(self.bad.items()))
            raise LabError(f"{len(self.bad)} of {len(self)} images in {self.root} cannot be decoded, such as "
                           f"{printable(path)} ({fault}); fetch or copy the data set again")

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """Return the images at these positions [k], uint8 [k, size, size, 3]."""
        rows = np.asarray(rows, np.int64)
        if (memory := self.memory_of(rows)) is not None:
            return memory[rows]
        blocks = np.array_split(rows, min(len(rows), 2 * self._cores))
        return np.concatenate(list(self._pool.map(self._read, blocks)))

    def memory_of(self, rows: np.ndarray) -> np.ndarray | None:
        """Return the memory of all cached images, uint8 [k, size, size, 3], if those at these positions are cached."""
        return self._pixels if rows.max(initial=-1) < len(self._pixels) else None

    def _read(self, rows: np.ndarray) -> np.ndarray:
        return np.stack([self._pixels[row] if row < len(self._pixels) else
                         decode.read_image(f"{self.root}/{self.paths[row]}", self.shape[1]) for row in rows])

    def _open_folder(self) -> Path:
        """Return the folder of the decoded images, which the first process makes."""
        stamps = [_read_stamp(f"{self.root}/{path}") for path in self.paths]
        name = digest_of(decode.VERSION, self.shape, str(self.root), self.paths, stamps, BOOT_ID.read_text())
        try:
            parent = own_temporary_dir()
        except OSError as error:
            raise LabError(f"cannot keep decoded images in {error.filename or tempfile.gettempdir()} "
                           f"({error.strerror}); set TMPDIR to a folder on a disk of this machine") from error
        folder = make_folder_once(parent / name, f"checking the images of {self.root}", self._fill, "TMPDIR")
        os.utime(folder)  # Last used now.
        return folder

    def _fill(self, folder: Path) -> None:
        """Decode all images into an empty folder, and write down which cannot be decoded."""
        _evict(folder.parent)
        free = min(psutil.virtual_memory().available, shutil.disk_usage(folder).free) // 2
        count = min(len(self), free // math.prod(self.shape[1:]))
        bad, digests = {}, []
        with open(folder / PIXELS, "wb") as file, ThreadPool(self._cores) as pool:
            shape = (count, *self.shape[1:])
            np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
            # `disable=None`: no progress bar unless stderr is a terminal. `delay`: nor for less than a second of work.
            checked = tqdm(pool.imap(self._check, self.paths, 16), "checking images", len(self), disable=None, delay=1,
                           unit=" images")
            for row, (path, (pixels, fault, digest)) in enumerate(zip(self.paths, checked, strict=True)):
                if row < count:
                    file.write(pixels)
                if fault:
                    bad[path] = fault
                digests.append((path, digest))
        (folder / CHECKED).write_text(json.dumps({"bad": bad, "digest": digest_of(*digests)}))

    def _check(self, path: str) -> tuple[np.ndarray, str, str]:
        """Return an image, why it cannot be decoded ("" if it can), and a digest of its file."""
        pixels, fault, digest = np.zeros(self.shape[1:], np.uint8), "", ""
        try:
            content = Path(f"{self.root}/{path}").read_bytes()
            digest = hashlib.blake2b(content, digest_size=8).hexdigest()
            pixels = decode.decode_bytes(content, self.shape[1])
        except Exception as error:  # Pillow raises a dozen kinds on broken files; they all mean the same here.
            fault = decode.explain(error)
        return pixels, fault, digest


def _read_stamp(file: str) -> tuple[int, ...]:
    """Return a file's size, times and inode; nothing if it is missing."""
    try:
        status = os.stat(file)
    except OSError:
        return ()
    # tar and `cp -p` keep modification times: two swapped folders may have the same ones, and the same sizes.
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _evict(home: Path) -> None:
    """Delete the caches of other trees, least recently used first, until they occupy less than the free disk space.

    A process that has mapped such a file keeps it; only the name is deleted.
    """
    others = sorted(home.glob(f"[!.]*/{PIXELS}"), key=lambda file: file.parent.stat().st_mtime)
    while sum(file.stat().st_size for file in others) > shutil.disk_usage(home).free:
        shutil.rmtree(others.pop(0).parent)
