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
from labs.datasets.decode import VERSION, Values, decode_file, reason
from labs.datasets.index import Index
from labs.datasets.locks import exclusive
from labs.run import atomic, paths, resources
from labs.run.errors import LabError
from labs.run.text import printable

FORMAT = 4  # Of the remembered results: size, times and inode, fault, range of values and digest of each file.
LARGEST = 1 << 30  # Largest file of a tree's results, in bytes; an image takes about a hundred.
MAX_REMEMBERED = 50  # Trees; the least recently checked are forgotten.


Check = Callable[[int], Values | None]
"""Decodes the image at a position; returns its range of values if they have more than 8 bits; raises if it fails."""


class Checked(NamedTuple):
    """What a check of all images has found."""

    bad: dict[str, str]
    """The paths of the images that cannot be decoded, each with the reason."""
    values: Values | None
    """The range of all images of more than 8 bits per value; None if there are none."""
    digest: str
    """Of the names and contents of all files: the same on all machines; it changes when a file is replaced."""
    contradictory: list[str]
    """The paths of the images that another class holds as well, as a file with the same bytes."""


def check_images(index: Index, check: Check | None = None,
                 recheck: Callable[[int, bool], bool] = lambda position, deep: False,
                 threshold: float = 0.1) -> Checked:
    """Find the images that cannot be decoded, the range of values of those of more than 8 bits, and a digest of all.

    Every image is decoded, because a truncated file has an intact header. Results are remembered by path, size, times
    and inode, so that the next run reads only new and changed files. One process works; others wait and use its
    results. The digest is of names and contents: the same on all machines; it changes when a file is replaced.

    Args:
        index: The images.
        check: By default, decodes at an eighth of the size.
        recheck: Returns whether to check the image at a position again although it is known to be sound; it may have
            more than 8 bits.
        threshold: Share of undecodable images above which something is wrong with the whole data set.

    Raises:
        LabError: More than this share cannot be decoded.
    """
    check = check or (lambda position: decode_file(index.root / index.paths[position], 1)[1])
    memory = _memory_file(index.root)
    with exclusive(memory.with_suffix(".lock"), f"checking the images of {index.root}"):
        known = _load(memory)
        now = dict(zip(index.paths, stamps(index.root, index.paths), strict=True))
        results = {path: old for path, old in known.items() if now.get(path) == (old[0], old[1])}
        try:
            to_check = [position for position, path in enumerate(index.paths) if path not in results or
                        (not results[path][2] and recheck(position, results[path][3] is not None))]
            for position, result in _checked(to_check, index, check):
                results[index.paths[position]] = [*now[index.paths[position]], *result]
        finally:  # After Ctrl-C, too.
            if results != known:
                _save(memory, index.root, results)
    bad = {path: results[path][2] for path in index.paths if results[path][2]}
    if len(bad) > threshold * len(index):
        path, fault = next(iter(bad.items()))
        raise LabError(f"{len(bad)} of {len(index)} images in {index.root} cannot be decoded, such as "
                       f"{printable(path)} ({fault}); fetch or copy the data set again")
    ranges = [values for _, _, _, values, _ in results.values() if values]
    return Checked(bad, (min(low for low, _ in ranges), max(high for _, high in ranges)) if ranges else None,
                   digest_of(*((path, results[path][4]) for path in index.paths)),
                   _in_several_classes(index, {path: results[path][4] for path in index.paths if path not in bad}))


def _in_several_classes(index: Index, digests: Mapping[str, str]) -> list[str]:
    """Return the paths whose file has a digest that occurs in more than one class."""
    classes = collections.defaultdict(set)
    for path, label in zip(index.paths, index.labels, strict=True):
        if path in digests:
            classes[digests[path]].add(int(label))
    return [path for path, digest in digests.items() if len(classes[digest]) > 1]


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


def _checked(positions: list[int], index: Index, check: Check) -> Iterator[tuple[int, tuple]]:
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


def _check_one(index: Index, check: Check, position: int) -> tuple[str, list[float] | None, str]:
    """Return why an image cannot be decoded ("" if it can), its range of values, and a digest of its file."""
    fault, values, content = "", None, ""
    try:
        values = check(position)
    except Exception as error:  # Pillow raises a dozen kinds on broken files; they all mean the same here.
        fault = reason(error)
    with contextlib.suppress(OSError), open(f"{index.root}/{index.paths[position]}", "rb") as stream:
        content = hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=8)).hexdigest()
    return fault, values and list(values), content


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
    return memory["files"] if (memory.get("reader"), memory.get("format")) == (VERSION, FORMAT) else {}


def _save(file: Path, root: Path, results: dict[str, list]) -> None:
    with atomic.writing(file, "w") as stream:
        memory = {"reader": VERSION, "format": FORMAT, "root": str(root), "files": results}
        json.dump(memory, stream, separators=(",", ":"))
    by_age = sorted(file.parent.glob("*.json"), key=lambda other: other.stat().st_mtime)
    for old in by_age[:-MAX_REMEMBERED]:
        old.unlink(missing_ok=True)
