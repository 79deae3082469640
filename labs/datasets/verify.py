"""Check before training that images can be decoded; checked files are remembered."""

from __future__ import annotations

import collections
import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from labs.datasets.arrays import digest_of
from labs.datasets.decode import VERSION, decode_file, reason
from labs.datasets.index import Index
from labs.datasets.locks import exclusive
from labs.run import atomic, paths, resources
from labs.run.errors import LabError
from labs.run.text import printable

FORMAT = f"5, {VERSION}"  # Of the remembered results: size, times and inode, fault and digest of each file.
LARGEST = 1 << 30  # Largest file of a tree's results, in bytes; an image takes about a hundred.
THRESHOLD = 0.1
"""Share of undecodable images above which something is wrong with the whole data set."""


class Checked(NamedTuple):
    """What a check of all images has found."""

    bad: dict[str, str]
    """The paths of the images that cannot be decoded, each with the reason."""
    digest: str
    """Of the names and contents of all files: the same on all machines; it changes when a file is replaced."""
    contradictory: list[str]
    """The paths of the images that another class holds as well, as a file with the same bytes."""


def check_images(index: Index, check: Callable[[int], object] | None = None,
                 recheck: Callable[[int], bool] = lambda position: False) -> Checked:
    """Find the images that cannot be decoded, those in several classes, and a digest of all.

    Every image is decoded, because a truncated file has an intact header. Results are remembered by path, size, times
    and inode, so that the next run reads only new and changed files. One process works; others wait and use its
    results.

    Args:
        index: The images.
        check: Decodes the image at a position, and raises if it cannot; by default at an eighth of the size.
        recheck: Returns whether to check the image at a position again although it is known to be sound.

    Raises:
        LabError: More than a tenth cannot be decoded.
    """
    check = check or (lambda position: decode_file(index.root / index.paths[position], 1))
    memory = _memory_file(index.root)
    with exclusive(memory.with_suffix(".lock"), f"checking the images of {index.root}"):
        known = _load(memory)
        now = dict(zip(index.paths, stamps(index.root, index.paths), strict=True))
        results = {path: old for path, old in known.items() if now.get(path) == (old[0], old[1])}
        to_check = [position for position, path in enumerate(index.paths)
                    if path not in results or (not results[path][2] and recheck(position))]
        try:
            for position, result in _checked(to_check, index, check):
                results[index.paths[position]] = [*now[index.paths[position]], *result]
        finally:  # After Ctrl-C, too.
            if results != known:
                with atomic.writing(memory, "w") as stream:
                    json.dump({"format": FORMAT, "root": str(index.root), "files": results}, stream)
    bad = {path: results[path][2] for path in index.paths if results[path][2]}
    if len(bad) > THRESHOLD * len(index):
        path, fault = next(iter(bad.items()))
        raise LabError(f"{len(bad)} of {len(index)} images in {index.root} cannot be decoded, such as "
                       f"{printable(path)} ({fault}); fetch or copy the data set again")
    digests = {path: results[path][3] for path in index.paths}
    return Checked(bad, digest_of(*digests.items()), _in_several_classes(index, digests, bad))


def _in_several_classes(index: Index, digests: Mapping[str, str], bad: Mapping[str, str]) -> list[str]:
    """Return the paths of the sound files whose digest occurs in more than one class."""
    classes = collections.defaultdict(set)
    for path, label in zip(index.paths, index.labels.tolist(), strict=True):
        if path not in bad:
            classes[digests[path]].add(label)
    return [path for path in index.paths if path not in bad and len(classes[digests[path]]) > 1]


def stamps(root: Path, paths: Sequence[str]) -> list[tuple[int, str]]:
    """Return each file's size in bytes, and its times and inode; (-1, "") where a file is missing."""
    return [_stamp(f"{root}/{path}") for path in paths]


def _stamp(file: str) -> tuple[int, str]:
    try:
        status = os.stat(file)
    except OSError:
        return -1, ""
    # tar and `cp -p` keep modification times: two swapped folders may have the same ones, and the same sizes.
    return status.st_size, f"{status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"


def _checked(positions: list[int], index: Index, check: Callable[[int], object]) -> Iterator[tuple[int, tuple]]:
    """Yield each position with what `_check_one` returns for it."""
    if not positions:
        return
    threads = resources.cores()
    with ThreadPool(threads) as pool:
        chunk = max(1, min(64, len(positions) // (4 * threads)))  # Small enough to keep all threads busy to the end.
        results = pool.imap(lambda position: _check_one(index, check, position), positions, chunksize=chunk)
        # `disable=None`: no progress bar unless stderr is a terminal. `delay`: nor for less than a second of work.
        bar = tqdm(results, "checking images", len(positions), disable=None, delay=1, unit=" images")
        yield from zip(positions, bar, strict=True)


def _check_one(index: Index, check: Callable[[int], object], position: int) -> tuple[str, str]:
    """Return why an image cannot be decoded ("" if it can), and a digest of its file."""
    fault = content = ""
    try:
        check(position)
    except Exception as error:  # Pillow raises a dozen kinds on broken files; they all mean the same here.
        fault = reason(error)
    with contextlib.suppress(OSError), open(f"{index.root}/{index.paths[position]}", "rb") as stream:
        content = hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=8)).hexdigest()
    return fault, content


def _memory_file(root: Path) -> Path:
    # With the inode: nodes with a copy each under one path would forget each other's results.
    tree = f"{root} {os.stat(root).st_ino}"
    name = hashlib.blake2b(tree.encode(errors="surrogateescape"), digest_size=12).hexdigest()
    return paths.cache_dir() / "checked" / f"{name}.json"


def _load(file: Path) -> dict[str, list]:
    try:
        memory = json.loads(atomic.read_bytes(file, LARGEST))
    except (OSError, ValueError, LabError):  # Missing or damaged: everything is checked again.
        return {}
    return memory["files"] if memory.get("format") == FORMAT else {}
