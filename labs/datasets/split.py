"""Assign images to training, validation and test, per class.

Each image has a fixed point of [0, 1), from its name alone, so it keeps its subset when others are added or removed.
Names without numbers get a hash of class, name and seed. Numbered files of one class ("001_0001.jpg", "001_0002.jpg",
...) get multiples of the golden ratio modulo 1, offset by such a hash. They fill [0, 1) so evenly that a share of them
is met within about one image per class; independent hashes would scatter by the square root of the class size.

Source: D. Knuth, The Art of Computer Programming, volume 3, section 6.4, on Fibonacci hashing. Integer arithmetic
modulo 2^64 makes the points the same on every machine.
"""

import functools
import hashlib
import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from labs.datasets.index import Index
from labs.run.errors import LabError, printable

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


def split_images(images: Index, test_split: float, validation_split: float, seed: int) -> Split:
    """Hold out test images, then validation images from the rest, per class and the same in every job.

    An image whose point is below `test_split` is a test image, and so on.

    Args:
        images: Names and classes of the images, which need not be files. File extensions do not count.
        test_split: Share of all images.
        validation_split: Share of the images that are not test images.
        seed: Another seed, another split.

    Raises:
        LabError: A share leaves a class without training images, or holds out no image at all.
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
