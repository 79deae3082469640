"""Find test images that are also training images (leakage): on these, test accuracy measures memory.

Two kinds of copies are reported: files with the same bytes, and images whose perceptual hashes differ in a few bits (64
bits from the lowest frequencies of a cosine transform; C. Zauner, Implementation and Benchmarking of Perceptual Image
Hash Functions, 2010).
"""

import dataclasses
import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image
from tqdm import tqdm

from labs.datasets.decode import read_image
from labs.run import resources

BITS, MAX_DIFFERENT = 64, 2
FALSE_ALARMS = 0.05  # Share of test images that the hash may mistake for others. Of 120 synthetic fruits it takes 1.
HASHED = 128  # Width and height in pixels of the images that are hashed.
BLOCK = 1024  # Test images compared at a time: 0.3 GB against Fruits-360's 80,000.


@dataclasses.dataclass(frozen=True)
class Leak:
    """The test images that are also training images, one pair (test, training) for each of them."""

    tests: int  # Number of test images.
    identical: tuple[tuple[str, str], ...]  # Pairs with the same bytes.
    alike: tuple[tuple[str, str], ...]  # Pairs of nearly the same image.

    def __str__(self) -> str:
        if not self.identical and not self.alike:
            return f"leak check: none of the {self.tests} test images is in the training set"
        example = (self.identical or self.alike)[0]
        verdict = ("the test accuracy partly measures memorization" if self.serious else
                   "these few may be false alarms of the hash: look at the images")
        return (f"leak check: of {self.tests} test images, {len(self.identical)} are identical to a training image, "
                f"{len(self.alike)} nearly identical ({example[0]} and {example[1]}); {verdict}")

    @property
    def serious(self) -> bool:
        """Whether the test accuracy can no longer be trusted: any copy, or more look-alikes than false alarms."""
        return bool(self.identical) or len(self.alike) > FALSE_ALARMS * self.tests


def find_test_leakage(root: Path, train: Sequence[str], test: Sequence[str]) -> Leak:
    """Compare every test image with every training image; the paths are relative to `root`."""
    paths = [*train, *test]
    with ThreadPoolExecutor(resources.cores()) as pool:
        hashes = list(tqdm(pool.map(lambda path: _hashes(root / path), paths), "leak check", len(paths), leave=False,
                           unit="image", disable=None))  # None: no progress bar unless stderr is a terminal.
    train_path = {digest: path for (digest, _), path in zip(hashes[: len(train)], train, strict=True)}
    identical = {path: train_path[digest] for (digest, _), path in zip(hashes[len(train):], test, strict=True)
                 if digest in train_path}
    signs = np.array([signs for _, signs in hashes], np.float32)
    blocks = np.array_split(signs[len(train):], 1 + len(test) // BLOCK)
    # The product of two rows of +1 and -1 is 64 less two for each bit that differs.
    nearest = [(row.argmax(), row.max()) for block in blocks for row in block @ signs[: len(train)].T]
    alike = {path: train[index] for path, (index, product) in zip(test, nearest, strict=True)
             if product >= BITS - 2 * MAX_DIFFERENT and path not in identical}
    return Leak(len(test), tuple(identical.items()), tuple(alike.items()))


def _hashes(path: Path) -> tuple[bytes, np.ndarray]:
    """Return a file's digest, and its perceptual hash as +1 and -1."""
    from scipy.fft import dctn

    image = Image.fromarray(read_image(path, HASHED)).convert("L").resize((32, 32), Image.Resampling.LANCZOS)
    low = dctn(np.asarray(image, float))[:8, :8]
    signs = np.where(low > np.median(low), 1, -1).ravel()
    return hashlib.blake2b(path.read_bytes(), digest_size=16).digest(), signs
