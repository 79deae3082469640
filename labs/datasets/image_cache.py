"""The images of a tree, checked and decoded once for all workers of a machine."""

import dataclasses
import hashlib
import json
import math
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from pathlib import Path

import numpy as np
from tqdm import tqdm

from labs.datasets import decode
from labs.datasets.arrays import digest_of
from labs.datasets.index import Index
from labs.run import resources
from labs.run.atomic import make_folder_once
from labs.run.errors import LabError, printable
from labs.run.paths import own_temporary_dir

# Identifies the current boot of the machine: after a crash, a file may be on the disk without its pixels.
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
UNUSED = 24 * 3600  # Seconds without use after which a cache is deleted when another is made; sooner for space.
THRESHOLD = 0.1  # Share of undecodable images above which something is wrong with the whole data set.


class ImageCache:
    """The images of a tree as uint8 [n, size, size, 3], indexed by arrays of positions, as numpy arrays are.

    The first process decodes every image, because a truncated file has an intact header, into a folder under TMPDIR.
    The other workers of the machine and later runs map its file. The folder's name is a hash of every path, size, time
    and inode and of this boot of the machine, so a stale one is never read, and it can be deleted at any time.

    Args:
        size: Width and height of the decoded images in pixels.
        cached: If False, every image is decoded each time.

    Attributes:
        memory: All images, if they are cached.
        bad: The paths of the images that cannot be decoded, each with the reason.
        digest: Of the names and contents of all files: the same on all machines.
        rows, sound: The decodable images: their positions, int64, and their index.

    Raises:
        LabError: More than a tenth of the images or all of a class cannot be decoded, or the folder cannot be made.
    """

    dtype = np.dtype(np.uint8)

    def __init__(self, index: Index, size: int, cached: bool = True):
        self.root, self.paths, self.labels = index.root, index.paths, index.labels
        self.shape = (len(index), size, size, 3)
        self._cores = resources.cores()
        self._pool = ThreadPoolExecutor(self._cores, "decode")
        folder = self._open_folder()
        # It is never written to, but numpy exports memory to TensorFlow only if it is writable.
        self.memory = np.asarray(np.load(folder / "pixels.npy", mmap_mode="r+", allow_pickle=False)) if cached else None
        checked = json.loads((folder / "checked.json").read_text())
        self.bad: dict[str, str] = checked["bad"]
        self.digest: str = checked["digest"]
        self.rows = np.flatnonzero([path not in self.bad for path in self.paths])
        self.sound = dataclasses.replace(index, paths=[self.paths[row] for row in self.rows],
                                         labels=index.labels[self.rows])
        self._refuse_bad(index)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """Return the images at these positions [k], uint8 [k, size, size, 3]."""
        if self.memory is not None:
            return self.memory[rows]
        blocks = np.array_split(rows, min(len(rows), 2 * self._cores))
        return np.concatenate(list(self._pool.map(self._decode, blocks)))

    def _decode(self, rows: np.ndarray) -> np.ndarray:
        return np.stack([decode.read_image(f"{self.root}/{self.paths[row]}", self.shape[1]) for row in rows])

    def _refuse_bad(self, index: Index) -> None:
        if len(self.bad) > THRESHOLD * len(self):
            path, fault = next(iter(self.bad.items()))
            raise LabError(f"{len(self.bad)} of {len(self)} images in {self.root} cannot be decoded, such as "
                           f"{printable(path)} ({fault}); fetch or copy the data set again")
        if len(emptied := np.setdiff1d(index.labels, self.sound.labels)):
            name = printable(index.class_names[emptied[0]])
            raise LabError(f"no image of class {name} can be decoded; repair its files or remove its folder")

    def _open_folder(self) -> Path:
        """Return the folder of the decoded images, which the first process makes."""
        stamps = [_read_stamp(f"{self.root}/{path}") for path in self.paths]
        name = digest_of(decode.VERSION, self.shape, str(self.root), self.paths, stamps, BOOT_ID.read_text())
        action = f"checking the images of {self.root}"
        folder = make_folder_once(own_temporary_dir() / name, action, self._fill, "TMPDIR")
        os.utime(folder)  # Last used now.
        return folder

    def _fill(self, folder: Path) -> None:
        """Decode all images into an empty folder, and write down which cannot be decoded."""
        for used, other in sorted((each.stat().st_mtime, each) for each in folder.parent.iterdir() if each.is_dir()):
            is_short = shutil.disk_usage(folder).free < math.prod(self.shape) and not other.name.startswith(".")
            if is_short or used < time.time() - UNUSED:  # A name with a dot is one that is being made.
                shutil.rmtree(other, ignore_errors=True)  # A process that has mapped its file keeps it.
        bad, digests = {}, []
        with open(folder / "pixels.npy", "wb") as file, ThreadPool(self._cores) as pool:
            header = {"descr": "|u1", "fortran_order": False, "shape": self.shape}
            np.lib.format.write_array_header_1_0(file, header)
            # `disable=None`: no progress bar unless stderr is a terminal. `delay`: nor for less than a second of work.
            checked = tqdm(pool.imap(self._check, self.paths, 16), "checking images", len(self), disable=None, delay=1,
                           unit=" images")
            for path, (pixels, fault, digest) in zip(self.paths, checked, strict=True):
                file.write(pixels)
                if fault:
                    bad[path] = fault
                digests.append((path, digest))
        (folder / "checked.json").write_text(json.dumps({"bad": bad, "digest": digest_of(*digests)}))

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
