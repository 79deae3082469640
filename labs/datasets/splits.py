"""Train, validation and test: the three parts of a data set, made alike by every worker."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from labs.datasets import decode, folders, predefined_split
from labs.datasets.arrays import Arrays, aligned, read_wiki
from labs.datasets.image_cache import Images
from labs.datasets.synthetic.noise import Noise
from labs.run.errors import LabError


@dataclasses.dataclass(frozen=True)
class Subset:
    """Some of the pictures of a set."""

    images: np.ndarray | Images | Noise
    """All pictures of the set, uint8 [n, height, width, channels]."""
    labels: np.ndarray
    """All classes, int64 [n], or all ages, float32 [n]."""
    positions: np.ndarray
    """Which of them are in this part, int64 [k]."""

    def __post_init__(self):
        if isinstance(self.images, np.ndarray):  # Those that `arrays` has read are.
            object.__setattr__(self, "images", aligned(self.images))

    def __len__(self) -> int:
        return len(self.positions)

    def digest(self) -> str:
        """Return a checksum of what is in this part: equal on two workers only if their data are."""
        digest = hashlib.blake2b(self.positions.tobytes(), digest_size=16)
        digest.update(self.labels[self.positions].tobytes())
        digest.update(getattr(self.images, "digest", None) or np.ascontiguousarray(self.images).data)
        return digest.hexdigest()


@dataclasses.dataclass(frozen=True)
class Splits:
    """A data set in its three parts."""

    train: Subset
    validation: Subset
    test: Subset
    class_names: Sequence[str]
    """Empty where a label is no class but a quantity."""
    description: str
    """What the set holds and what was left out of it, for a person."""


def from_folder(root: Path, image_size: int, test_split: float, validation_split: float, seed: int) -> Splits:
    """Read a tree of one folder per class and divide it, per class: the test first, then the validation.

    Args:
        root: The folder of the class folders.
        image_size: Side in pixels to which pictures are resized.
        test_split: Share of all pictures.
        validation_split: Share of the pictures that are not in the test.
        seed: Of the division.
    """
    found = folders.index(root)
    images, index, sound = _decoded(found, image_size)
    division = folders.split(index, test_split, validation_split, seed)
    train, validation, test = (Subset(images, found.labels, sound[positions]) for positions in division)
    text = "\n".join(filter(None, [folders.describe(index), folders.missing(division, index)]))
    return Splits(train, validation, test, index.class_names, text)


def _decoded(
    index: folders.Index, image_size: int, memory: int | None = None
) -> tuple[Images, folders.Index, np.ndarray]:
    """Decode each picture once, to see that it can be, and keep it for training.

    Returns:
        All pictures; the index of those that can be decoded; and their positions among all, int64.
    """
    images = Images(index.root, index.paths, image_size, memory)
    bad = decode.undecodable(index, images.take, images.missing)
    sound = np.flatnonzero([path not in bad for path in index.paths])
    return images, folders.without(index, bad), sound


def from_tree(root: Path, image_size: int, test_split: float, validation_split: float, seed: int) -> Splits:
    """Read a tree of pictures, with its own test (`from_divided`) or without (`from_folder`)."""
    if predefined_split.halves(root):
        return from_divided(root, image_size, validation_split, seed)
    return from_folder(root, image_size, test_split, validation_split, seed)


def from_divided(root: Path, image_size: int, validation_split: float, seed: int) -> Splits:
    """Read a tree with its own test (Training/CLASS, Test/CLASS); the validation is taken from its training, per class.

    Args:
        root: The folder of the two.
        image_size: Side in pixels to which pictures are resized.
        validation_split: Share of its training images.
        seed: Of the division.
    """
    found = predefined_split.index(root)
    images, index, sound = _decoded(found, image_size)
    tested = predefined_split.tested(index)
    trained, tested = np.flatnonzero(~tested), np.flatnonzero(tested)
    names = [index.paths[place] for place in trained]
    inner = folders.split((names, index.labels[trained]), 0.0, validation_split, seed)
    positions = (trained[inner.train], trained[inner.validation], tested)
    counts = [f"{len(part)} {name}" for part, name in zip(positions, ("training", "validation", "test"), strict=True)]
    text = f"{folders.describe(index)}\n{', '.join(counts)} images"
    train, validation, test = (Subset(images, found.labels, sound[part]) for part in positions)
    return Splits(train, validation, test, index.class_names, text)


def from_arrays(arrays: Arrays, validation_split: float, seed: int) -> Splits:
    """Divide a set that comes with its own test: the validation is taken from its training images, per class.

    Args:
        arrays: The set.
        validation_split: Share of its training images.
        seed: Of the division.
    """
    ids = [f"{number}" for number in range(len(arrays.train_labels))]
    division = folders.split((ids, arrays.train_labels), 0.0, validation_split, seed)
    train, validation = (Subset(arrays.train_images, arrays.train_labels, positions)
                         for positions in (division.train, division.validation))
    test = Subset(arrays.test_images, arrays.test_labels, np.arange(len(arrays.test_labels)))
    text = f"{len(train)} training, {len(validation)} validation and {len(test)} test images"
    text = f"{text} of {len(arrays.class_names)} classes"
    return Splits(train, validation, test, arrays.class_names, text)


def from_faces(root: Path, image_size: int, test_split: float, validation_split: float, seed: int,
               cached: bool = True) -> Splits:
    """Read IMDB-WIKI's faces and their ages, without what nobody can learn from, and divide them.

    Args:
        root: The folder of wiki.mat.
        image_size: Side in pixels to which the faces are resized.
        test_split: Share of all faces.
        validation_split: Share of the faces that are not in the test.
        seed: Of the division.
        cached: Decode each picture once; otherwise each time that it is read, as a plain input pipeline does.

    Raises:
        LabError: wiki.mat cannot be read, no face is left, or too many pictures cannot be decoded.
    """
    faces = read_wiki(root)
    rows = sum(faces.left_out.values()) + len(faces.paths)
    if not faces.paths:
        raise LabError(f"none of the {rows} faces of {root} can be used; fetch or copy the data set again")
    found = folders.Index(faces.root, ("face",), faces.paths, np.zeros(len(faces.paths), np.int64), {})
    images, index, sound = _decoded(found, image_size, memory=None if cached else 0)
    division = folders.split((index.paths, index.labels), test_split, validation_split, seed)
    ages = faces.ages.astype(np.float32)
    left_out = faces.left_out | {"undecodable": len(found) - len(index)}
    text = f"{len(index)} faces of {rows}, aged {ages[sound].min():.0f} to {ages[sound].max():.0f}; left out: "
    text += ", ".join(f"{count} {reason}" for reason, count in left_out.items())
    train, validation, test = (Subset(images, ages, sound[positions]) for positions in division)
    return Splits(train, validation, test, (), text)


def from_noise(count: int, image_size: int, seed: int) -> Splits:
    """Return random pictures with random ages, all for training: the control that has no input to wait for.

    Args:
        count: How many.
        image_size: Their side in pixels.
        seed: Of pictures and ages.
    """
    ages = np.random.default_rng(seed).integers(0, 101, count).astype(np.float32)
    noise, none = Noise(count, image_size, seed), np.arange(0)
    train, validation, test = (Subset(noise, ages, positions) for positions in (np.arange(count), none, none))
    return Splits(train, validation, test, (), f"{count} random pictures, made in memory")
