"""A fixed point of [0, 1) for every image, from its name alone: the hash behind the split.

You need not read this to use `split_images`. Why it is not a plain hash: numbered files of one class ("001_0001.jpg",
"001_0002.jpg", ...) get the points of a low-discrepancy (Weyl) sequence: multiples of the golden ratio modulo 1, offset
by a hash of class, name and seed. Such points fill [0, 1) as evenly as possible, so a share of them is met within about
one image per class. Independent hashes would scatter by the square root of the class size. Names without numbers get
the plain hash. A point depends on seed, class and name only, so an image keeps it when others are added or removed.

Source: D. Knuth, The Art of Computer Programming, volume 3, section 6.4, on Fibonacci hashing. Integer arithmetic
modulo 2^64 makes the points the same on every machine.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence

import numpy as np

ONE = 1 << 64
# 2^64 times the fractional parts of the golden ratio and of the square roots of 2, 5 and 3.
SLOPES = (0x9E3779B97F4A7C15, 0x6A09E667F3BCC908, 0x3C6EF372FE94F82B, 0xBB67AE8584CAA73B)
_DIGITS = "0123456789"
_NUMBER = re.compile(f"([{_DIGITS}]+)")


def points(names: Sequence[str], class_names: Iterable[str], seed: int) -> np.ndarray:
    """Return each image's point of [0, 1) in units of 2^-64, uint64 [n].

    Args:
        names: File names or paths [n]; extensions do not count.
        class_names: The class of each image [n].
        seed: Another seed, other points.
    """
    offsets: dict[tuple, int] = {}
    values = (_point(name, class_name, seed, offsets) for name, class_name in zip(names, class_names, strict=True))
    return np.fromiter(values, np.uint64, len(names))


def threshold(share: float) -> np.uint64:
    """Return the end of [0, share) in the units of `points`."""
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
