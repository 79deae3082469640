"""List the images of a tree with one folder per class. Paths and labels only: no image is opened here."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from labs.run.errors import LabError
from labs.run.text import printable

EXTENSIONS = {"jpg", "jpeg", "jpe", "jfif", "png", "gif", "bmp", "webp", "tif", "tiff", "ppm", "pgm"}
STRAYS = ("/greg", "/RENAME2")
"""A folder and a file in class folders of Caltech256; the embedded images have them too."""


@dataclasses.dataclass(frozen=True)
class Index:
    """The images of a tree, sorted by class and name; an image is known by its position in `paths`."""

    root: Path
    class_names: tuple[str, ...]
    paths: list[str]
    """Relative to the root: "001.ak47/001_0001.jpg"."""
    labels: np.ndarray
    """Position of each image's class in `class_names`, int64 [n]."""
    skipped: dict[str, list[str]]
    """Names of the files and folders that were skipped, by reason."""

    def __len__(self) -> int:
        return len(self.paths)


def index_folder(root: str | os.PathLike) -> Index:
    """List the images of a tree: each folder in `root` that holds images is a class.

    Deeper folders are not entered, so circular links do no harm.

    Args:
        root: The folder of the class folders.

    Raises:
        LabError: There are fewer than two classes, or a folder cannot be read.
    """
    root = Path(root).absolute()
    skipped: dict[str, list[str]] = {}
    classes: list[str] = []
    paths: list[str] = []
    labels: list[int] = []
    entries = _entries(root)
    for name, kind in entries:
        if kind != "folder":
            skipped.setdefault("outside a class folder" if kind == "image" else kind, []).append(name)
            continue
        images = _images(root, name, skipped)
        labels += [len(classes)] * len(images)
        paths += images
        classes += [name] if images else []
    if len(classes) < 2:
        raise LabError(_why_not_two(root, [name for name, kind in entries if kind == "folder"], classes, skipped))
    return Index(root, tuple(classes), paths, np.array(labels, np.int64), skipped)


def drop_images(index: Index, bad: Collection[str]) -> Index:
    """Return the index without the paths in `bad`, which are listed as skipped.

    Raises:
        LabError: A class would be left without images.
    """
    if not bad:
        return index
    keep = np.fromiter((path not in bad for path in index.paths), bool, len(index))
    labels = index.labels[keep]
    emptied = np.flatnonzero(np.bincount(labels, minlength=len(index.class_names)) == 0)
    if len(emptied):
        name = printable(index.class_names[emptied[0]])
        raise LabError(f"no image of class {name} can be decoded; repair its files or remove its folder")
    paths = [path for path, kept in zip(index.paths, keep, strict=True) if kept]
    skipped = index.skipped | {"undecodable": sorted(bad)}
    return dataclasses.replace(index, paths=paths, labels=labels, skipped=skipped)


def describe(index: Index) -> str:
    """Return a few short lines on what the tree holds and what was skipped."""
    counts = np.bincount(index.labels, minlength=len(index.class_names))
    smallest, largest = (f"{counts[label]} in {printable(index.class_names[label])}"
                         for label in (counts.argmin(), counts.argmax()))
    lines = [f"{len(index)} images in {len(index.class_names)} classes (from {smallest} to {largest})"]
    strays = [name for names in index.skipped.values() for name in names if name.endswith(STRAYS)]
    others = {reason: [name for name in names if name not in strays] for reason, names in sorted(index.skipped.items())}
    lines += [f"left out as intended, strays of Caltech256: {summarize(strays)}"] if strays else []
    lines += [f"left out, {reason}: {summarize(names)}" for reason, names in others.items() if names]
    same = _same_but_for_case(index.class_names)
    return "\n".join(lines + ([f"names that differ only in case: {summarize(same)}"] if same else []))


def summarize(names: Sequence[str]) -> str:
    """Return the number of names and the first of them: "5 (a, b, c, ...)"."""
    return f"{len(names)} ({', '.join(map(printable, names[:3]))}{', ...' if len(names) > 3 else ''})"


def _same_but_for_case(names: Sequence[str]) -> list[str]:
    """Return names that a case-insensitive disk would merge: worth a line, not an error."""
    lower = [name.casefold() for name in names]
    return [name for name, folded in zip(names, lower, strict=True) if lower.count(folded) > 1]


def _images(root: Path, name: str, skipped: dict[str, list[str]]) -> list[str]:
    """Return the images of one class folder; all other entries are added to `skipped`."""
    images: list[str] = []
    for file, kind in _entries(root / name):
        (images if kind == "image" else skipped.setdefault(kind, [])).append(f"{name}/{file}")
    if not images:
        skipped.setdefault("folder without images", []).append(name)
    return images


def _entries(folder: Path) -> list[tuple[str, str]]:
    """Return each name in a folder and its kind, in an order that depends on neither file system nor locale."""
    try:
        with os.scandir(folder) as entries:
            return sorted([(entry.name, _kind(entry)) for entry in entries])
    except OSError as error:
        raise LabError(f"cannot read folder {printable(folder)} ({error.strerror}); "
                       "check the path and its permissions") from error


def _kind(entry: os.DirEntry) -> str:
    try:
        if entry.name.startswith("."):
            return "hidden"
        if entry.is_file():
            _, dot, extension = entry.name.rpartition(".")
            return "image" if extension.lower() in EXTENSIONS else "not an image" if dot else "no extension"
        return "folder" if entry.is_dir() else "broken link or special file"
    except OSError:  # A link to itself.
        return "broken link or special file"


def _why_not_two(root: Path, folders: list[str], classes: list[str], skipped: dict[str, list[str]]) -> str:
    """Return the error message for a tree with fewer than two classes."""
    cure = "put the images of each class into its own folder"
    if classes:
        return f"{root} has images of one class only ({printable(classes[0])}); {cure}"
    # Perhaps the path is one level too high. Given a training and a test folder, suggest the training folder.
    for name in sorted(folders, key=lambda name: not name.lower().startswith("train")):
        if any(kind == "folder" for _, kind in _entries(root / name)):
            inner = printable(root / name)
            return f"no images in the folders of {root}; is {inner} the folder of the class folders?"
    if "outside a class folder" in skipped:
        return f"the images are in {root} itself; {cure}"
    return f"no images in the folders of {root}; {cure}"
