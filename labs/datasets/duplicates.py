"""Pictures that are in the training and in the test: what a network has learnt by heart, it does not recognise.

Public fruit sets are frames of films of a turning fruit, and trees of fresh and rotten fruit hold turned copies of one
photo: their test measures memory. Two kinds are told apart: files of the same bytes, and pictures whose perceptual
hashes (64 bits from the lowest frequencies of a cosine transform: Zauner 2010) differ in a few bits.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image
from tqdm import tqdm

from labs.datasets import decode

BITS = 64
FALSE_ALARMS = 0.05
"""Share of test pictures that a perceptual hash may confuse with another picture: 1 of 120 of the drawn fruits, no two
of which are copies; 210 of 320 are found in a sample of Fruits-360."""
BLOCK = 4096  # Test pictures compared at a time: some hundred megabytes against Fruits-360's 80,000.


@dataclasses.dataclass(frozen=True)
class Leak:
    """What a test shares with its training."""

    tests: int
    """Test pictures in all."""
    identical: tuple[tuple[str, str], ...]
    """Pairs (test, training) of the same bytes: one pair for each such test picture."""
    alike: tuple[tuple[str, str], ...]
    """Pairs of nearly the same picture, one for each such test picture that has no identical one."""

    def __str__(self) -> str:
        if not self.identical and not self.alike:
            return f"leak check: none of the {self.tests} test pictures is in the training"
        example = (self.identical or self.alike)[0]
        verdict = ("the test accuracy is partly memory" if self.serious else
                   "so few may be false alarms of the hash: look at the pictures")
        return (f"leak check: of {self.tests} test pictures {len(self.identical)} are byte for byte in the training, "
                f"{len(self.alike)} nearly the same as one there ({example[0]} and {example[1]}); {verdict}")

    @property
    def serious(self) -> bool:
        """Whether the test accuracy can no longer be believed: any copy, or more look-alikes than false alarms."""
        return bool(self.identical) or len(self.alike) > FALSE_ALARMS * self.tests


def leak(root: Path, train: Sequence[str], test: Sequence[str], bits: int = 2, show: bool = False) -> Leak:
    """Compare every test picture with every training picture.

    Args:
        root: The folder of the paths.
        train: Paths of training pictures.
        test: Paths of test pictures.
        bits: How many of the 64 bits of two perceptual hashes may differ.
        show: Draw a progress bar.
    """
    import sys

    paths = [*train, *test]
    with ThreadPoolExecutor(decode.cores()) as pool:
        looks = list(tqdm(pool.map(lambda path: _look(root / path), paths), total=len(paths), desc="leak check",
                          unit="picture", leave=False, disable=not show, file=sys.stderr))
    first = {look[0]: path for look, path in zip(looks[: len(train)], train, strict=True)}
    identical = {path: first[look[0]] for look, path in zip(looks[len(train):], test, strict=True) if look[0] in first}
    signs = np.array([look[1] for look in looks], np.float32)
    nearest = _nearest(signs[: len(train)], signs[len(train):], bits)
    alike = {path: train[place] for path, place in zip(test, nearest, strict=True)
             if place >= 0 and path not in identical}
    return Leak(len(test), tuple(identical.items()), tuple(alike.items()))


def _look(path: Path) -> tuple[bytes, np.ndarray]:
    """Return a file's digest, and its perceptual hash as +1 and -1."""
    import imagehash

    content = path.read_bytes()
    with Image.open(path) as picture:
        signs = np.where(imagehash.phash(picture.convert("RGB")).hash.ravel(), 1, -1)
    return hashlib.blake2b(content, digest_size=16).digest(), signs


def _nearest(train: np.ndarray, test: np.ndarray, bits: int) -> np.ndarray:
    """Return for each test hash the place of the nearest training hash, or -1 if that differs in more than `bits`.

    The product of two rows of +1 and -1 is 64 less two for each bit that differs.
    """
    places = np.full(len(test), -1)
    for start in range(0, len(test) if len(train) else 0, BLOCK):
        products = test[start : start + BLOCK] @ train.T
        best = products.argmax(axis=1)
        near = products[np.arange(len(best)), best] >= BITS - 2 * bits
        places[start : start + BLOCK][near] = best[near]
    return places
