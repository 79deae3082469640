"""List the images of a tree with one folder per class. Paths and labels only: no image is opened here."""

from __future__ import annotations

import dataclasses
import glob
import itertools
import os
import re
import unicodedata
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from labs.run.errors import LabError
from labs.run.text import printable

EXTENSIONS = {"jpg", "jpeg", "jpe", "jfif", "png", "gif", "bmp", "webp", "tif", "tiff", "ppm", "pgm"}
STRAYS = ("/greg", "/RENAME2")
"""A folder and a file in class folders of Caltech256; the embedded images have them too."""
_PART = re.compile(r"((images?|masks?|labels?|annotations?|set|data|train(ing)?|test(ing)?|val(id(ation)?)?|dev|eval)"
                   r"([ _-]|$)?)+")
"""Names of folders that hold a subset of a data set, as `_stem` returns them."""
_DEEPEST = 3
"""How many levels below --data to search for class folders that a message can suggest."""


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
        LabError: There are fewer than two classes, they are subsets of a data set or look alike, a name is not
            UTF-8, or a folder cannot be read.
    """
    index = _listed(Path(root).absolute())
    if problem := _why_not_two(index) if len(index.class_names) < 2 else _misread(index) or alike(index.class_names):
        raise LabError(problem)
    for name in index.class_names:
        if name.encode(errors="replace").decode() != name:
            raise LabError(f"the class folder {name!a} is not UTF-8, which a record needs; rename it")
    return index


def _listed(root: Path) -> Index:
    """Return what `index_folder` returns, even for a folder that it refuses."""
    skipped: dict[str, list[str]] = {}
    classes: list[str] = []
    paths: list[str] = []
    labels: list[int] = []
    for name, kind in _entries(root):
        if kind != "folder":
            skipped.setdefault("outside a class folder" if kind == "image" else kind, []).append(name)
            continue
        images = _images(root, name, skipped)
        labels += [len(classes)] * len(images)
        paths += images
        classes += [name] if images else []
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
    sizes = f"from {smallest} to {largest}" if counts.min() < counts.max() else f"{counts[0]} in each"
    lines = [f"{len(index)} images in {len(index.class_names)} classes ({sizes})"]
    strays = [name for names in index.skipped.values() for name in names if name.endswith(STRAYS)]
    others = {reason: [name for name in names if name not in strays] for reason, names in sorted(index.skipped.items())}
    lines += [f"left out as intended, strays of Caltech256: {summarize(strays)}"] if strays else []
    lines += [f"left out, {reason}: {summarize(names)}" for reason, names in others.items() if names]
    odd = {"names that differ only in case": _same_but_for_case(index.class_names),
           "classes named like a subset": list(filter(_is_part, index.class_names))}
    return "\n".join(lines + [f"{text}: {summarize(names)}" for text, names in odd.items() if names])


def summarize(names: Sequence[str]) -> str:
    """Return the number of names and the first of them: "5 (a, b, c, ...)"."""
    return f"{len(names)} ({', '.join(map(printable, names[:3]))}{', ...' if len(names) > 3 else ''})"


def _same_but_for_case(names: Sequence[str]) -> list[str]:
    """Return names that a case-insensitive disk would merge: worth a line, not an error."""
    lower = [_visible(name).casefold() for name in names]
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


def _extension(name: str) -> str:
    return name.rpartition(".")[2].lower() if "." in name else ""


def _kind(entry: os.DirEntry) -> str:
    try:
        if entry.name.startswith("."):
            return "hidden"
        if entry.is_file():
            return "image" if _extension(entry.name) in EXTENSIONS else \
                "not an image" if "." in entry.name else "no extension"
        return "folder" if entry.is_dir() else "broken link or special file"
    except OSError:  # A link to itself.
        return "broken link or special file"


def alike(names: Sequence[str]) -> str:
    """Return an error message if two class names look the same on a screen, else an empty string."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(_visible(name), name)
        if other != name:
            return (f"the class folders {other!a} and {name!a} look alike: probably one class, spelled in two ways; "
                    "move the images of one into the other, and remove it")
    return ""


def _visible(name: str) -> str:
    """Return what one sees of a name: no zero-width characters, and no spaces at its ends."""
    letters = (letter for letter in unicodedata.normalize("NFC", name) if unicodedata.category(letter) != "Cf")
    return " ".join("".join(letters).split())


def _stem(name: str) -> str:
    """Return a folder's name without a number at its end."""
    return re.sub(r"[\W_]*\d*$", "", name.lower())


def _is_part(name: str) -> bool:
    return bool(_PART.fullmatch(_stem(name)))


def _misread(index: Index) -> str:
    """Return an error message if the folders are subsets of a data set, such as Kaggle's train and test1, else ""."""
    if len(set(map(_stem, index.class_names))) < 2 or not all(map(_is_part, index.class_names)):
        return ""
    train = next((name for name in index.class_names if _stem(name).startswith("train")), index.class_names[0])
    folder, names = printable(index.root / train), " and ".join(map(printable, index.class_names))
    return (f"{names} in {printable(index.root)} are subsets of a data set, not classes; make a folder for each "
            f"class in {folder}, move its images there{_table(index)}, and use --data {folder}")


def _table(index: Index) -> str:
    """Return a remark on a table beside the images that may list their classes."""
    tables = [name for name in index.skipped.get("not an image", ()) if name.lower().endswith((".csv", ".tsv"))]
    return f" ({printable(tables[0])} may list the classes)" if tables else ""


def _why_not_two(index: Index) -> str:
    """Return the error message for a tree with fewer than two classes."""
    root, classes = printable(index.root), index.class_names
    if classes:
        cause = f"{root} has images of one class only ({printable(classes[0])})"
    elif "outside a class folder" in index.skipped:
        cause = f"the images are in {root} itself"
    else:
        cause = f"no images in the folders of {root}"
    if inner := _class_folders(index, _DEEPEST):
        return f"{cause}; are the class folders in {printable(inner)}?"
    below = itertools.islice(glob.iglob("*/*/*", root_dir=index.root), 100_000)
    if deep := min((name for name in below if _extension(name) in EXTENSIONS), default=""):
        folder = (index.root / deep).parent
        return (f"{cause}: those of {printable(folder)} are one folder too deep; move the images of each class into "
                f"its own folder, here into {printable(folder.parent)}")
    return f"{cause}; put the images of each class into its own folder{_table(index)}"


def _class_folders(index: Index, depth: int) -> Path | None:
    """Return the folder below a tree that holds the class folders, for a path that is too high; None if unclear.

    Of a training and a test folder, return the training folder.
    """
    names = [*index.class_names, *index.skipped.get("folder without images", ())]
    outer = [name for name in names if any(kind == "folder" for _, kind in _entries(index.root / name))]
    outer = [name for name in outer if _stem(name).startswith("train")] or outer
    if len(outer) != 1 or not depth:
        return None
    inner = _listed(index.root / outer[0])
    good = len(inner.class_names) > 1 and not _misread(inner) and not alike(inner.class_names)
    return inner.root if good else _class_folders(inner, depth - 1)
