"""Check before training that images can be decoded; checked files are remembered."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from labs.datasets.arrays import digest_of
from labs.datasets.decode import VERSION, decode_file, explain
from labs.datasets.image_cache import ImageCache, read_stamp
from labs.datasets.index import Index
from labs.datasets.locks import exclusive
from labs.run import atomic, paths, resources
from labs.run.errors import LabError
from labs.run.text import printable

FORMAT = f"5, {VERSION}"  # Of the remembered results: size, times and inode, fault and digest of each file.
THRESHOLD = 0.1
"""Share of undecodable images above which something is wrong with the whole data set."""


class Checked(NamedTuple):
    """What a check of all images has found."""

    bad: dict[str, str]
    """The paths of the images that cannot be decoded, each with the reason."""
    digest: str
    """Of the names and contents of all files: the same on all machines; it changes when a file is replaced."""


def check_images(index: Index, images: ImageCache | None = None) -> Checked:
    """Find the images that cannot be decoded, and a digest of all; keep the decoded ones.

    Every image is decoded, because a truncated file has an intact header. Results are remembered by path, size, times
    and inode, so that the next run reads only new and changed files. One process works; others wait and use its
    results.

    Args:
        index: The images.
        images: A cache for the decoded images; by default they are only checked, at an eighth of the size.

    Raises:
        LabError: More than a tenth cannot be decoded.
    """
    memory = _memory_file(index.root)
    with exclusive(memory.with_suffix(".lock"), f"checking the images of {index.root}"):
        known = _load(memory)
        stamps = {path: read_stamp(f"{index.root}/{path}") for path in index.paths}
        results = {path: old for path, old in known.items() if stamps.get(path) == (old[0], old[1])}
        rows = [row for row, path in enumerate(index.paths)
                if path not in results or (images and not results[path][2] and images.is_missing(row))]
        try:
            for row, result in _check(rows, index, images):
                results[index.paths[row]] = [*stamps[index.paths[row]], *result]
        finally:  # After Ctrl-C, too.
            if results != known:
                with atomic.writing(memory, "w") as stream:
                    json.dump({"format": FORMAT, "root": str(index.root), "files": results}, stream)
    bad = {path: results[path][2] for path in index.paths if results[path][2]}
    if len(bad) > THRESHOLD * len(index):
        path, fault = next(iter(bad.items()))
        raise LabError(f"{len(bad)} of {len(index)} images in {index.root} cannot be decoded, such as "
                       f"{printable(path)} ({fault}); fetch or copy the data set again")
    return Checked(bad, digest_of(*((path, results[path][3]) for path in index.paths)))


def _check(rows: list[int], index: Index, images: ImageCache | None) -> Iterator[tuple[int, tuple[str, str]]]:
    """Yield each row with why its image cannot be decoded ("" if it can), and a digest of its file."""

    def check(row: int) -> tuple[str, str]:
        file, fault, content = f"{index.root}/{index.paths[row]}", "", ""
        try:
            images.add(row) if images else decode_file(file, 1)
        except Exception as error:  # Pillow raises a dozen kinds on broken files; they all mean the same here.
            fault = explain(error)
        with contextlib.suppress(OSError), open(file, "rb") as stream:
            content = hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=8)).hexdigest()
        return fault, content

    threads = resources.cores()
    with ThreadPool(threads) as pool:
        chunk = min(64, 1 + len(rows) // (4 * threads))  # Small enough to keep all threads busy to the end.
        # `disable=None`: no progress bar unless stderr is a terminal. `delay`: nor for less than a second of work.
        bar = tqdm(pool.imap(check, rows, chunk), "checking images", len(rows), disable=None, delay=1, unit=" images")
        yield from zip(rows, bar, strict=True)


def _memory_file(root: Path) -> Path:
    # With the inode: nodes with a copy each under one path would forget each other's results.
    return paths.cache_dir() / "checked" / f"{digest_of(str(root), root.stat().st_ino)}.json"


def _load(file: Path) -> dict[str, list]:
    try:
        memory = json.loads(file.read_text())
        return memory["files"] if memory["format"] == FORMAT else {}
    except (OSError, ValueError, KeyError):  # Missing or damaged: everything is checked again.
        return {}
