"""A tree of one folder per class: what is in it, and its split into training, validation and test images.

Paths and labels only: no picture is opened here.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np

from labs.run.errors import LabError

EXTENSIONS = {"jpg", "jpeg", "jpe", "jfif", "png", "gif", "bmp", "webp", "tif", "tiff", "ppm", "pgm"}


@dataclasses.dataclass(frozen=True)
class Index:
    """The images of a tree, sorted by class and name; a position in `paths` is an image's number."""

    root: Path
    class_names: tuple[str, ...]
    paths: list[str]
    """Relative to the root: "001.ak47/001_0001.jpg"."""
    labels: np.ndarray
    """Position of each image's class in `class_names`, int64 [n]."""
    strays: dict[str, list[str]]
    """What was left out, by reason."""

    def __len__(self) -> int:
        return len(self.paths)


def index(root: str | os.PathLike) -> Index:
    """List the images of a tree: each folder in `root` that holds images is a class.

    Folders further down are not entered, so links in a circle do no harm.

    Args:
        root: The folder of the class folders.

    Raises:
        LabError: There are not two classes to tell apart, or a folder cannot be read.
    """
    root = Path(root).absolute()
    strays: dict[str, list[str]] = {}
    classes: list[str] = []
    paths: list[str] = []
    labels: list[int] = []
    top = _listing(root)
    for name, kind in top:
        if kind != "folder":
            strays.setdefault("outside a class folder" if kind == "image" else kind, []).append(name)
            continue
        images = _images(root, name, strays)
        labels += [len(classes)] * len(images)
        paths += images
        classes += [name] if images else []
    if len(classes) < 2:
        raise LabError(_why_not_two(root, [name for name, kind in top if kind == "folder"], classes, strays))
    return Index(root, tuple(classes), paths, np.array(labels, np.int64), strays)


def without(index: Index, bad: Collection[str]) -> Index:
    """Return the index less the images named in `bad`, which become its strays.

    Raises:
        LabError: A class would be left with no image.
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
    strays = index.strays | {"undecodable": sorted(bad)}
    return dataclasses.replace(index, paths=paths, labels=labels, strays=strays)


def describe(index: Index) -> str:
    """Return what was found and what was left out, in a few short lines."""
    counts = np.bincount(index.labels, minlength=len(index.class_names))
    ends = counts.argmin(), counts.argmax()
    few, many = (f"{counts[label]} in {printable(index.class_names[label])}" for label in ends)
    lines = [f"{len(index)} images in {len(index.class_names)} classes (from {few} to {many})"]
    lines += [f"left out, {reason}: {_some(names)}" for reason, names in sorted(index.strays.items())]
    twins = _same_but_for_case(index.class_names)
    return "\n".join(lines + ([f"names that differ only in case: {_some(twins)}"] if twins else []))


def printable(name: str) -> str:
    """Return a file name as one line that any terminal can show."""
    return repr(name)[1:-1]


def _some(names: Sequence[str], shown: int = 3) -> str:
    more = ", ..." if len(names) > shown else ""
    return f"{len(names)} ({', '.join(map(printable, names[:shown]))}{more})"


def _same_but_for_case(names: Sequence[str]) -> list[str]:
    """Two classes here, but one on a disk that does not tell A from a: worth a line, not an error."""
    lower = [name.casefold() for name in names]
    return [name for name, folded in zip(names, lower, strict=True) if lower.count(folded) > 1]


def _images(root: Path, name: str, strays: dict[str, list[str]]) -> list[str]:
    """The images of one class folder; what else is there goes to `strays`."""
    images: list[str] = []
    for file, kind in _listing(root / name):
        (images if kind == "image" else strays.setdefault(kind, [])).append(f"{name}/{file}")
    if not images:
        strays.setdefault("folder without images", []).append(name)
    return images


def _listing(folder: Path) -> list[tuple[str, str]]:
    """Names in a folder and what each is, sorted alike on every file system and in every language."""
    try:
        with os.scandir(folder) as entries:
            return sorted([(entry.name, _kind(entry)) for entry in entries])
    except OSError as error:
        raise LabError(f"cannot read folder {printable(str(folder))} ({error.strerror}); "
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


def _why_not_two(root: Path, folders: list[str], classes: list[str], strays: dict[str, list[str]]) -> str:
    cure = "put the images of each class into a folder of its own"
    if classes:
        return f"{root} has images of one class only ({printable(classes[0])}); {cure}"
    # One level too high? Of a training and a test folder the training one is meant.
    for name in sorted(folders, key=lambda name: not name.lower().startswith("train")):
        if any(kind == "folder" for _, kind in _listing(root / name)):
            inner = printable(str(root / name))
            return f"no images in the folders of {root}; is {inner} the folder of the class folders?"
    if "outside a class folder" in strays:
        return f"the images lie in {root} itself; {cure}"
    return f"no images in the folders of {root}; {cure}"


@dataclasses.dataclass(frozen=True)
class Split:
    """Positions of the images of each part, int64, rising."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter((self.train, self.validation, self.test))


def split(
    images: Index | tuple[Sequence[str], np.ndarray], test_split: float, validation_split: float, seed: int
) -> Split:
    """Hold out test images, then validation images from the rest, per class and alike in every job.

    Each image is placed on [0, 1) by its own class and name alone: below `test_split` it is a test image, and
    so on. So it stays in its part when other images come or go. Exact quotas could not keep that promise:
    with a half, one of any two images would be a test image; but of three, two are in the same part. Here the
    shares are met within about one image in a class of numbered files, and by chance for other names.

    Args:
        images: An index, or ids [n] and labels [n] of images that are not files.
        test_split: Share of all images.
        validation_split: Share of the images that are not test images.
        seed: Another seed, another split.

    Raises:
        LabError: A share makes no sense, or leaves a class without training images or a part without any.
    """
    if not (0 <= test_split < 1 and 0 <= validation_split < 1):
        raise LabError(f"test_split {test_split} or validation_split {validation_split} is not a share; "
                       "give 0 or more, below 1")
    places, labels = _places(images, seed)
    tests = places < _end(test_split)
    held_out = places < _end(test_split + (1 - test_split) * validation_split)
    division = Split(*map(np.flatnonzero, (~held_out, held_out & ~tests, tests)))
    _check(division, images, labels, test_split, validation_split)
    return division


def missing(division: Split, index: Index) -> str:
    """Return a line on the classes too small to have validation or test images; "" if there are none."""
    lines = []
    for part, positions in (("validation", division.validation), ("test", division.test)):
        lacking = np.setdiff1d(index.labels, index.labels[positions]) if len(positions) else ()
        if len(lacking):
            lines.append(f"no {part} image of {_some([index.class_names[label] for label in lacking])}")
    return "; ".join(lines)


def _check(division: Split, images, labels: np.ndarray, test_split: float, validation_split: float) -> None:
    lacking = np.setdiff1d(labels, labels[division.train])
    if len(lacking):
        name = images.class_names[lacking[0]] if isinstance(images, Index) else str(lacking[0])
        raise LabError(f"class {printable(name)} is left without training images; add some or lower "
                       f"test_split {test_split} or validation_split {validation_split}")
    for part, share in (("test", test_split), ("validation", validation_split)):
        if share and not len(getattr(division, part)):
            raise LabError(f"{part}_split {share} holds out none of {len(labels)} images; give more, or 0")


_DIGITS = "0123456789"
_NUMBER = re.compile(f"([{_DIGITS}]+)")
# Fractions of the golden ratio and of the roots of 2, 5 and 3, times 2^64. Multiples of such numbers fill
# [0, 1) as evenly as can be, so a run of numbered files is split almost exactly; a hash would scatter it.
_SLOPES = (0x9E3779B97F4A7C15, 0x6A09E667F3BCC908, 0x3C6EF372FE94F82B, 0xBB67AE8584CAA73B)
_ONE = 1 << 64


def _end(share: float) -> np.uint64:
    return np.uint64(min(int(share * _ONE), _ONE - 1))


def _places(images: Index | tuple[Sequence[str], np.ndarray], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Each image's place on [0, 1), in units of 2^-64, and its label."""
    names: Sequence[str]
    classes: Sequence[str] | dict[int, str]
    if isinstance(images, Index):
        names, labels, classes = images.paths, images.labels, images.class_names
    else:
        names, labels = images[0], np.asarray(images[1])
        classes = {label: str(label) for label in set(labels.tolist())}
    origins: dict[tuple, int] = {}
    places = (_place(name, classes[label], seed, origins)
              for name, label in zip(names, labels.tolist(), strict=True))
    return np.fromiter(places, np.uint64, len(labels)), labels


def _place(name: str, class_name: str, seed: int, origins: dict[tuple, int]) -> int:
    """One image's place: where its like begin (`_origin`), and its last number times the golden ratio.

    Args:
        name: Path or name; its extension does not count.
        class_name: The folder.
        seed: Of the split.
        origins: Those found so far; numbered files share one.
    """
    stem = name.rpartition(".")[0] or name
    head = stem.rstrip(_DIGITS)
    number = stem[len(head):]
    key = class_name, head, not number
    if (origin := origins.get(key)) is None:
        origin = origins[key] = _origin(head, class_name, seed, _SLOPES[1:] if number else _SLOPES)
    return (origin + int(number or 0) * _SLOPES[0]) % _ONE


def _origin(head: str, class_name: str, seed: int, slopes: Sequence[int]) -> int:
    """A hash of class and name without its numbers, and the numbers, from the last, times a slope each."""
    pieces = _NUMBER.split(head.rpartition("/")[2])
    moved = 0
    for place, slope in zip(range(len(pieces) - 2, 0, -2), slopes, strict=False):
        moved += int(pieces[place]) * slope
        pieces[place] = "#"
    text = "\0".join([str(seed), class_name, *pieces]).encode(errors="surrogateescape")
    return moved + int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
