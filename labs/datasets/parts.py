"""Train, validation and test: the three parts of a data set, made alike by every worker."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from labs.datasets import folders, pictures
from labs.datasets.arrays import Arrays
from labs.datasets.images import Images


@dataclasses.dataclass(frozen=True)
class Part:
    """Some of the pictures of a set."""

    images: np.ndarray | Images
    """All pictures of the set, uint8 [n, height, width, channels]."""
    labels: np.ndarray
    """All classes, int64 [n]."""
    positions: np.ndarray
    """Which of them are in this part, int64 [k]."""

    def __len__(self) -> int:
        return len(self.positions)

    def digest(self) -> str:
        """Return a checksum of what is in this part: equal on two workers only if their data are."""
        digest = hashlib.blake2b(self.positions.tobytes(), digest_size=16)
        digest.update(self.labels[self.positions].tobytes())
        digest.update(getattr(self.images, "digest", None) or np.ascontiguousarray(self.images).data)
        return digest.hexdigest()


@dataclasses.dataclass(frozen=True)
class Parts:
    """A data set in its three parts."""

    train: Part
    validation: Part
    test: Part
    class_names: Sequence[str]
    description: str
    """What the set holds and what was left out of it, for a person."""


def from_folder(root: Path, image_size: int, test_split: float, validation_split: float, seed: int) -> Parts:
    """Read a tree of one folder per class and divide it, per class: the test first, then the validation.

    Args:
        root: The folder of the class folders.
        image_size: Side in pixels to which pictures are resized.
        test_split: Share of all pictures.
        validation_split: Share of the pictures that are not in the test.
        seed: Of the division.
    """
    index = folders.index(root)
    index = folders.without(index, pictures.undecodable(index))
    division = folders.split(index, test_split, validation_split, seed)
    images = Images(index.root, index.paths, image_size)
    parts = (Part(images, index.labels, positions) for positions in division)
    text = "\n".join(filter(None, [folders.describe(index), folders.missing(division, index)]))
    return Parts(*parts, index.class_names, text)


def from_arrays(arrays: Arrays, validation_split: float, seed: int) -> Parts:
    """Divide a set that comes with its own test: the validation is taken from its training images, per class.

    Args:
        arrays: The set.
        validation_split: Share of its training images.
        seed: Of the division.
    """
    ids = [f"{number}" for number in range(len(arrays.train_labels))]
    division = folders.split((ids, arrays.train_labels), 0.0, validation_split, seed)
    train, validation = (Part(arrays.train_images, arrays.train_labels, positions)
                         for positions in (division.train, division.validation))
    test = Part(arrays.test_images, arrays.test_labels, np.arange(len(arrays.test_labels)))
    text = f"{len(train)} training, {len(validation)} validation and {len(test)} test images"
    text = f"{text} of {len(arrays.class_names)} classes"
    return Parts(train, validation, test, arrays.class_names, text)
