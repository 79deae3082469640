"""Assign images to training, validation and test, per class.

Each image has a fixed point of [0, 1), from its name alone. Why it is not a plain hash: numbered files of one class
("001_0001.jpg", "001_0002.jpg", ...) get the points of a low-discrepancy (Weyl) sequence: multiples of the golden ratio
modulo 1, offset by a hash of class, name and seed. Such points fill [0, 1) as evenly as possible, so a share of them is
met within about one image per class. Independent hashes would scatter by the square root of the class size. Names
without numbers get the plain hash. An image keeps its point when others are added or removed.

Source: D. Knuth, The Art of Computer Programming, volume 3, section 6.4, on Fibonacci hashing. Integer arithmetic
modulo 2^64 makes the points the same on every machine.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from labs.datasets.index import Index, summarize
from labs.run.errors import LabError
from labs.run.text import printable

ONE = 1 << 64
# 2^64 times the fractional parts of the golden ratio and of the square roots of 2, 5 and 3.
SLOPES = (0x9E3779B97F4A7C15, 0x6A09E667F3BCC908, 0x3C6EF372FE94F82B, 0xBB67AE8584CAA73B)
_DIGITS = "0123456789"
_NUMBER = re.compile(f"([{_DIGITS}]+)")


class Split(NamedTuple):
    """Indices of the images of each subset, int64, ascending."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def split_images(images: Index | tuple[Sequence[str], np.ndarray], test_split: float, validation_split: float,
                 seed: int) -> Split:
    """Hold out test images, then validation images from the rest, per class and the same in every job.

    An image whose point is below `test_split` is a test image, and so on. So an image keeps its subset when others are
    added or removed, which exact quotas could not promise. Shares are met within about one image in a class of
    numbered files, and on average for other names.

    Args:
        images: An index, or ids [n] and labels [n] of images that are not files.
        test_split: Share of all images.
        validation_split: Share of the images that are not test images.
        seed: Another seed, another split.

    Raises:
        LabError: A share is outside [0, 1), leaves a class without training images, or holds out no image at all.
    """
    if not (0 <= test_split < 1 and 0 <= validation_split < 1):
        raise LabError(f"test_split {test_split} or validation_split {validation_split} is not a fraction; "
                       "give at least 0 and less than 1")
    names, labels = (images.paths, images.labels) if isinstance(images, Index) else (images[0], np.asarray(images[1]))
    classes = [images.class_names[label] if isinstance(images, Index) else str(label) for label in labels.tolist()]
    points = _points(names, classes, seed)
    in_test = points < _threshold(test_split)
    held_out = points < _threshold(test_split + (1 - test_split) * validation_split)
    split = Split(*map(np.flatnonzero, (~held_out, held_out & ~in_test, in_test)))
    missing = np.setdiff1d(labels, labels[split.train])
    if len(missing):
        name = classes[int(np.flatnonzero(labels == missing[0])[0])]
        raise LabError(f"class {printable(name)} is left without training images; add some or lower "
                       f"test_split {test_split} or validation_split {validation_split}")
    for subset, share, held in (("test", test_split, split.test), ("validation", validation_split, split.validation)):
        if share and not len(held):
            raise LabError(f"{subset}_split {share} holds out none of {len(labels)} images; "
                           "use more images, or a larger share")
    return split


def classes_not_held_out(split: Split, index: Index) -> str:
    """Return a line that names the classes too small to have validation or test images; "" if there are none."""
    lines = []
    for subset, positions in (("validation", split.validation), ("test", split.test)):
        missing = np.setdiff1d(index.labels, index.labels[positions]) if len(positions) else ()
        if len(missing):
            lines.append(f"no {subset} image of {summarize([index.class_names[label] for label in missing])}")
    return "; ".join(lines)


def _points(names: Sequence[str], class_names: Iterable[str], seed: int) -> np.ndarray:
    """Return each image's point of [0, 1) in units of 2^-64, uint64 [n]; file extensions do not count."""
    offsets: dict[tuple, int] = {}
    points = (_point(name, class_name, seed, offsets) for name, class_name in zip(names, class_names, strict=True))
    return np.fromiter(points, np.uint64, len(names))


def _threshold(share: float) -> np.uint64:
    """Return the end of [0, share) in the units of `_points`."""
    return np.uint64(min(int(share * ONE), ONE - 1))


def _point(name: str, class_name: str, seed: int, offsets: dict[tuple, int]) -> int:
    """Return the offset of the name's group plus its last number times the golden ratio, modulo 1.

    Args:
        offsets: Cache of the offsets computed so far: numbered files of one group share theirs.
    """
    stem = name.rpartition(".")[0] or name
    head = stem.rstrip(_DIGITS)
    number = stem[len(head):]
    key = class_name, head, not number
    if (offset := offsets.get(key)) is None:
        offset = offsets[key] = _offset(head, class_name, seed, SLOPES[1:] if number else SLOPES)
    return (offset + int(number or 0) * SLOPES[0]) % ONE


def _offset(head: str, class_name: str, seed: int, slopes: Sequence[int]) -> int:
    """Return a hash of seed, class and name without numbers, plus each number, from the last, times its slope."""
    pieces = _NUMBER.split(head.rpartition("/")[2])
    shift = 0
    for i, slope in zip(range(len(pieces) - 2, 0, -2), slopes, strict=False):
        shift += int(pieces[i]) * slope
        pieces[i] = "#"
    text = "\0".join([str(seed), class_name, *pieces]).encode(errors="surrogateescape")
    return shift + int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
