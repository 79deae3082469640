"""Read a data set into training, validation and test subsets, identically on every worker.

An image's subset follows from a fixed point of [0, 1), from its name alone, so it stays when others are added or
removed. Names without numbers get a hash of class, name and seed. Numbered files of one class ("001_0001.jpg",
"001_0002.jpg", ...) get multiples of the golden ratio modulo 1, offset by such a hash. They fill [0, 1) so evenly that
a share of them is met within about one image per class; independent hashes would scatter by the square root of the
class size.

Source: D. Knuth, The Art of Computer Programming, volume 3, section 6.4, on Fibonacci hashing. Integer arithmetic
modulo 2^64 makes the points the same on every machine.
"""

import dataclasses
import functools
import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from labs.datasets import index
from labs.datasets.arrays import Arrays, align, digest_of, read_wiki
from labs.datasets.image_cache import ImageCache
from labs.datasets.index import Index
from labs.run.errors import LabError, printable

NOISE = 1024  # Largest number of different random images.
ONE = 1 << 64
# 2^64 times the fractional parts of the golden ratio and of the square roots of 2, 5 and 3.
SLOPES = (0x9E3779B97F4A7C15, 0x6A09E667F3BCC908, 0x3C6EF372FE94F82B, 0xBB67AE8584CAA73B)
_DIGITS = "0123456789"
_NUMBER = re.compile(f"([{_DIGITS}]+)")


@dataclasses.dataclass(frozen=True)
class Subset:
    """Some of the images of a data set."""

    images: np.ndarray | ImageCache  # All images of the data set, uint8 [n, height, width, channels].
    labels: np.ndarray  # All classes, int64 [n], or all ages in years, float32 [n].
    positions: np.ndarray  # Indices of the images of this subset, int64 [k].
    data: str = ""  # Digest of the whole data set, with its test images; independent of split, seed and image size.

    def __post_init__(self):
        if isinstance(self.images, np.ndarray):
            object.__setattr__(self, "images", align(self.images))
        object.__setattr__(self, "data", self.data or digest_of(self.images, self.labels))

    def __len__(self) -> int:
        return len(self.positions)

    def digest(self) -> str:
        """Return a checksum of images, labels and positions: equal on two workers only if their data are equal."""
        return digest_of(self.data, self.positions, self.labels[self.positions])


@dataclasses.dataclass(frozen=True)
class Splits:
    """A data set, split into its three subsets."""

    train: Subset
    validation: Subset
    test: Subset
    class_names: Sequence[str]
    description: str  # What the data set holds and what was left out, for the user.


class Split(NamedTuple):
    """Indices of the images of each subset, int64, ascending."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def from_folder(root: Path, image_size: int, test_split: float, validation_split: float, seed: int) -> Splits:
    """Read a tree with one folder per class and split it per class: first the test, then the validation images.

    Args:
        image_size: Width and height in pixels to which images are resized.
        test_split: Share of all images.
        validation_split: Share of the images that are not test images.

    Raises:
        LabError: There are fewer than two classes, too many undecodable images, or the shares do not fit the classes.
    """
    images = ImageCache(index.index_folder(root), image_size)
    return _to_splits(images, split_images(images.sound, test_split, validation_split, seed))


def from_tree(root: Path, image_size: int, test_split: float, validation_split: float, seed: int) -> Splits:
    """Read and split a tree like `from_folder`, but keep a test set of its own (Training/CLASS, Test/CLASS)."""
    if not index.train_and_test_folders(root):
        return from_folder(root, image_size, test_split, validation_split, seed)
    images = ImageCache(index.index_train_and_test(root), image_size)
    tests = np.flatnonzero(index.in_test(images.sound))
    first = tests[0]  # All training images come before it.
    split = _split_numbered(images.sound.paths[:first], images.sound.labels[:first], 0.0, validation_split, seed)
    return _to_splits(images, split._replace(test=tests))


def _split_numbered(names: list[str], labels: np.ndarray, test_split: float, validation_split: float,
                    seed: int) -> Split:
    """Split images by the numbers of their classes: a class's name has no effect."""
    classes = tuple(map(str, range(labels.max() + 1)))
    return split_images(Index(Path(), classes, names, labels, []), test_split, validation_split, seed)


def _to_splits(images: ImageCache, split: Split, ages: np.ndarray | None = None) -> Splits:
    """Return the subsets of a tree; the split has positions in the decodable images, `ages` are in place of classes."""
    digest = images.digest if ages is None else digest_of(images.digest, ages)
    labels = images.labels if ages is None else ages
    train, validation, test = (Subset(images, labels, images.rows[positions], digest) for positions in split)
    return Splits(train, validation, test, images.sound.class_names, _describe(images, split))


def _describe(images: ImageCache, split: Split) -> str:
    """Return lines on what a tree holds and what was left out."""
    counts = np.bincount(images.sound.labels)
    lines = [f"{counts.sum()} images in {len(counts)} classes ({counts.min()} to {counts.max()} each); "
             f"{_count(split)} images"]
    for what, names in (("left out", images.sound.skipped), ("cannot be decoded", sorted(images.bad))):
        if names:
            first = ", ".join(map(printable, names[:3])) + ", ..." * (len(names) > 3)
            lines.append(f"{what}: {len(names)} ({first})")
    labels = images.sound.labels
    for subset, positions in (("validation", split.validation), ("test", split.test)):
        missing = np.setdiff1d(labels, labels[positions]) if len(positions) else ()
        lines += [f"no {subset} image of {printable(images.sound.class_names[label])}" for label in missing[:3]]
    return "\n".join(lines)


def _count(split: Split) -> str:
    return f"{len(split.train)} training, {len(split.validation)} validation and {len(split.test)} test"


def from_arrays(arrays: Arrays, validation_split: float, seed: int) -> Splits:
    """Split a data set that has its own test set: hold out a share of its training images, per class."""
    names = [str(number) for number in range(len(arrays.train_labels))]
    split = _split_numbered(names, arrays.train_labels, 0.0, validation_split, seed)
    train, validation = (Subset(arrays.train_images, arrays.train_labels, positions, arrays.digest)
                         for positions in (split.train, split.validation))
    test = Subset(arrays.test_images, arrays.test_labels, np.arange(len(arrays.test_labels)), arrays.digest)
    text = f"{_count(split._replace(test=test.positions))} images of {len(arrays.class_names)} classes"
    return Splits(train, validation, test, arrays.class_names, text)


def from_faces(root: Path, image_size: int, test_split: float, validation_split: float, seed: int,
               cached: bool = True) -> Splits:
    """Read the usable faces of IMDB-WIKI and their ages, and split them; the arguments are those of `from_folder`.

    Args:
        cached: Decode each image once; if False, each time that it is read, as a plain input pipeline does.
    """
    paths, ages, left_out = read_wiki(Path(root))
    rows = sum(left_out.values()) + len(paths)
    images = ImageCache(Index(root, ("face",), paths, np.zeros(len(paths), np.int64), []), image_size, cached)
    split = _split_numbered(images.sound.paths, images.sound.labels, test_split, validation_split, seed)
    left_out["undecodable"] = len(images.bad)
    text = (f"{len(images.rows)} faces of {rows}, aged {ages[images.rows].min():.0f} to {ages[images.rows].max():.0f}; "
            f"left out: {', '.join(f'{count} {reason}' for reason, count in left_out.items())}")
    return dataclasses.replace(_to_splits(images, split, ages), class_names=(), description=text)


def from_noise(count: int, image_size: int, seed: int) -> Splits:
    """Return random images with random ages, all for training: the control experiment without input cost."""
    different = min(count, NOISE)
    images = np.random.default_rng(seed).integers(0, 256, (different, image_size, image_size, 3), np.uint8)
    ages = np.random.default_rng(seed).integers(0, 101, different).astype(np.float32)
    train = Subset(images, ages, np.arange(count) % different, "noise")
    validation = test = dataclasses.replace(train, positions=np.arange(0))
    return Splits(train, validation, test, (), f"{count} random images, generated in memory")


def split_images(images: Index, test_split: float, validation_split: float, seed: int) -> Split:
    """Hold out test images, then validation images from the rest, per class and the same in every job.

    An image whose point is below `test_split` is a test image, and so on. File extensions do not count.
    """
    offset_of = functools.cache(functools.partial(_offset, seed))  # Numbered files of one group share theirs.
    points = np.fromiter((_point(name, images.class_names[label], offset_of)
                          for name, label in zip(images.paths, images.labels.tolist(), strict=True)),
                         np.uint64, len(images))
    in_test = points < _threshold(test_split)
    held_out = points < _threshold(test_split + (1 - test_split) * validation_split)
    split = Split(*map(np.flatnonzero, (~held_out, held_out & ~in_test, in_test)))
    if len(missing := np.setdiff1d(images.labels, images.labels[split.train])):
        raise LabError(f"class {printable(images.class_names[missing[0]])} is left without training images; add some "
                       f"or lower test_split {test_split} or validation_split {validation_split}")
    for subset, share, held in (("test", test_split, split.test), ("validation", validation_split, split.validation)):
        if share and not len(held):
            raise LabError(f"{subset}_split {share} holds out none of {len(images)} images; "
                           "use more images, or a larger share")
    return split


def _threshold(share: float) -> np.uint64:
    """Return the end of [0, share) in units of 2^-64."""
    return np.uint64(min(int(share * ONE), ONE - 1))


def _point(name: str, class_name: str, offset_of: Callable[[str, str, bool], int]) -> int:
    """Return the offset of the name's group plus its last number times the golden ratio, modulo 1, times 2^64."""
    stem = name.rpartition(".")[0] or name
    head = stem.rstrip(_DIGITS)
    number = stem[len(head):]
    return (offset_of(class_name, head, bool(number)) + int(number or 0) * SLOPES[0]) % ONE


def _offset(seed: int, class_name: str, head: str, numbered: bool) -> int:
    """Return a hash of seed, class and name without numbers, plus each number, from the last, times its slope."""
    pieces = _NUMBER.split(head.rpartition("/")[2])
    shift = 0
    for i, slope in zip(range(len(pieces) - 2, 0, -2), SLOPES[1:] if numbered else SLOPES, strict=False):
        shift += int(pieces[i]) * slope
        pieces[i] = "#"
    text = "\0".join([str(seed), class_name, *pieces]).encode(errors="surrogateescape")
    return shift + int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
