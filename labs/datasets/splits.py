"""Read a data set into training, validation and test subsets, identically on every worker."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from labs.datasets import index, registry, verify
from labs.datasets.arrays import Arrays, aligned, digest_of, read_wiki
from labs.datasets.image_cache import ImageCache
from labs.datasets.split import classes_not_held_out, split_images
from labs.run.errors import LabError

NOISE = 1024
"""Largest number of different random images."""


@dataclasses.dataclass(frozen=True)
class Subset:
    """Some of the images of a data set."""

    images: np.ndarray | ImageCache
    """All images of the data set, uint8 [n, height, width, channels]."""
    labels: np.ndarray
    """All classes, int64 [n], or all ages in years, float32 [n]."""
    positions: np.ndarray
    """Indices of the images of this subset, int64 [k]."""
    data: str = ""
    """Digest of the whole data set, with its test images; independent of split, seed and image size."""

    def __post_init__(self):
        if isinstance(self.images, np.ndarray):
            object.__setattr__(self, "images", aligned(self.images))  # No copy if `arrays` has read them.
        data = self.data or digest_of(getattr(self.images, "digest", self.images), self.labels)
        object.__setattr__(self, "data", data)

    def __len__(self) -> int:
        return len(self.positions)

    def digest(self) -> str:
        """Return a checksum of images, labels and positions: equal on two workers only if their data are equal."""
        return digest_of(self.data, self.positions, self.labels[self.positions])

    def digest_of_names(self) -> str:
        """Return a checksum of the names and labels of these images alone."""
        names = [self.images.paths[row] for row in self.positions] if isinstance(self.images, ImageCache) else []
        return digest_of(names or self.positions, self.labels[self.positions])


@dataclasses.dataclass(frozen=True)
class Splits:
    """A data set, split into its three subsets."""

    train: Subset
    validation: Subset
    test: Subset
    class_names: Sequence[str]
    """Empty where labels are not classes but quantities."""
    description: str
    """What the data set holds and what was left out, for the user."""


def from_folder(root: Path, image_size: int, test_split: float, validation_split: float, seed: int) -> Splits:
    """Read a tree with one folder per class and split it per class: first the test, then the validation images.

    Args:
        root: The folder of the class folders.
        image_size: Width and height in pixels to which images are resized.
        test_split: Share of all images.
        validation_split: Share of the images that are not test images.
        seed: Seed of the split.

    Raises:
        LabError: There are fewer than two classes, too many undecodable images, or the shares do not fit the classes.
    """
    everything = index.index_folder(root)
    tree = _decoded(everything, image_size)
    split = split_images(tree.sound, test_split, validation_split, seed)
    return _splits(everything, tree, split, classes_not_held_out(split, tree.sound))


def from_tree(root: Path, image_size: int, test_split: float, validation_split: float, seed: int) -> Splits:
    """Read and split a tree like `from_folder`, but keep its own test set if it has one (Training/CLASS, Test/CLASS).

    Raises:
        LabError: The tree cannot be split (see `from_folder`), or the test set has a class that the training set lacks.
    """
    if not index.train_and_test_folders(root):
        return from_folder(root, image_size, test_split, validation_split, seed)
    everything = index.index_train_and_test(root)
    tree = _decoded(everything, image_size)
    is_test = index.in_test(tree.sound)
    rest = np.flatnonzero(~is_test)
    names = [tree.sound.paths[row] for row in rest]
    split = split_images((names, tree.sound.labels[rest]), 0.0, validation_split, seed)
    subsets = rest[split.train], rest[split.validation], np.flatnonzero(is_test)
    counts = zip(map(len, subsets), ("training", "validation", "test"), strict=True)
    return _splits(everything, tree, subsets, f"{', '.join(f'{count} {name}' for count, name in counts)} images")


class _Decoded(NamedTuple):
    """A tree whose images have been checked."""

    images: ImageCache
    """All images, including those that cannot be decoded."""
    sound: index.Index
    """The decodable images."""
    rows: np.ndarray
    """Positions of the decodable images among all images, int64."""
    found: verify.Checked


def _decoded(everything: index.Index, image_size: int, memory: int | None = None) -> _Decoded:
    """Decode each image once, to check the file, and cache it for training."""
    images = ImageCache(everything.root, everything.paths, image_size, memory)
    found = verify.check_images(everything, images.add, images.is_missing)
    rows = np.flatnonzero([path not in found.bad for path in everything.paths])
    return _Decoded(images, index.drop_images(everything, found.bad), rows, found)


def _splits(everything: index.Index, tree: _Decoded, positions: Sequence[np.ndarray], remark: str) -> Splits:
    """Return the three subsets of a tree, given as positions in its decodable images."""
    train, validation, test = (Subset(tree.images, everything.labels, tree.rows[each], tree.found.digest)
                               for each in positions)
    lines = [index.describe(tree.sound)]
    if tree.found.contradictory:
        lines.append(f"identical images in two classes: {index.summarize(tree.found.contradictory)}")
    return Splits(train, validation, test, tree.sound.class_names, "\n".join(lines + [remark] * bool(remark)))


def training_images(name: str, data: str, config: Any) -> int:
    """Return the most training images that a data set can have, as far as that is known without reading an image.

    Args:
        name: A name in the registry.
        data: As for `locate`.
        config: A lab's Config; the shares of its split and its seed are used, where it has them.

    Raises:
        LabError: The data set is not there, or cannot be split.
    """
    root, dataset = registry.locate(name, data), registry.get(name)
    if not dataset.image_tree:
        return sys.maxsize
    if "Test" in dataset.required and index.train_and_test_folders(root):
        return int((~index.in_test(index.index_train_and_test(root))).sum())
    test_split, validation_split = (getattr(config, share, 0.0) for share in ("test_split", "validation_split"))
    return len(split_images(index.index_folder(root), test_split, validation_split, config.seed).train)


def from_arrays(arrays: Arrays, validation_split: float, seed: int) -> Splits:
    """Split a data set that has its own test set: hold out validation images from its training images, per class.

    Args:
        arrays: The data set.
        validation_split: Share of the training images of each class.
        seed: Seed of the split.

    Raises:
        LabError: The share does not fit the classes.
    """
    ids = [str(number) for number in range(len(arrays.train_labels))]
    split = split_images((ids, arrays.train_labels), 0.0, validation_split, seed)
    train, validation = (Subset(arrays.train_images, arrays.train_labels, positions, arrays.digest)
                         for positions in (split.train, split.validation))
    test = Subset(arrays.test_images, arrays.test_labels, np.arange(len(arrays.test_labels)), arrays.digest)
    text = f"{len(train)} training, {len(validation)} validation and {len(test)} test images"
    return Splits(train, validation, test, arrays.class_names, f"{text} of {len(arrays.class_names)} classes")


def from_faces(root: Path, image_size: int, test_split: float, validation_split: float, seed: int,
               cached: bool = True) -> Splits:
    """Read the usable faces of IMDB-WIKI and their ages, and split them.

    Args:
        root: The folder of wiki.mat.
        image_size: Width and height in pixels to which the faces are resized.
        test_split: Share of all faces.
        validation_split: Share of the faces that are not in the test.
        seed: Seed of the split.
        cached: Decode each image once; if False, each time that it is read, as a plain input pipeline does.

    Raises:
        LabError: wiki.mat cannot be read, no face is usable, or too many images cannot be decoded.
    """
    faces = read_wiki(root)
    rows = sum(faces.left_out.values()) + len(faces.paths)
    if not faces.paths:
        raise LabError(f"none of the {rows} faces of {root} can be used; fetch or copy the data set again")
    everything = index.Index(root, ("face",), faces.paths, np.zeros(len(faces.paths), np.int64), {})
    tree = _decoded(everything, image_size, memory=None if cached else 0)
    split = split_images((tree.sound.paths, tree.sound.labels), test_split, validation_split, seed)
    ages = faces.ages.astype(np.float32)
    left_out = faces.left_out | {"undecodable": len(everything) - len(tree.sound)}
    text = (f"{len(tree.sound)} faces of {rows}, aged {ages[tree.rows].min():.0f} to {ages[tree.rows].max():.0f}; "
            f"left out: {', '.join(f'{count} {reason}' for reason, count in left_out.items())}")
    data = digest_of(tree.found.digest, ages)
    train, validation, test = (Subset(tree.images, ages, tree.rows[positions], data) for positions in split)
    return Splits(train, validation, test, (), text)


def from_noise(count: int, image_size: int, seed: int) -> Splits:
    """Return random images with random ages, all for training: the control experiment without input cost.

    Training on them runs at the speed of the model alone; a run on real images that is slower waits for its input.

    Args:
        count: Number of images.
        image_size: Their width and height in pixels.
        seed: Seed of images and ages.
    """
    different = min(count, NOISE)
    images = aligned(np.random.default_rng(seed).integers(0, 256, (different, image_size, image_size, 3), np.uint8))
    ages = np.random.default_rng(seed).integers(0, 101, different).astype(np.float32)
    train, validation, test = (Subset(images, ages, each, "noise")
                               for each in (np.arange(count) % different, np.arange(0), np.arange(0)))
    return Splits(train, validation, test, (), f"{count} random images, generated in memory")
