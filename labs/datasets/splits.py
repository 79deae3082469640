"""Read a data set into training, validation and test subsets, identically on every worker."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from labs.datasets import fetch, predefined_split, registry, verify
from labs.datasets.arrays import Arrays, aligned, digest_of, read_wiki
from labs.datasets.image_cache import ImageCache
from labs.datasets.index import Index, describe, drop_images, index_folder, summarize
from labs.datasets.split import classes_not_held_out, split_images
from labs.datasets.synthetic.noise import Noise
from labs.run.errors import LabError


@dataclasses.dataclass(frozen=True)
class Subset:
    """Some of the images of a data set."""

    images: np.ndarray | ImageCache | Noise
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
    everything = index_folder(root)
    images, index, decodable, found = _decoded(everything, image_size)
    split = split_images(index, test_split, validation_split, seed)
    train, validation, test = (Subset(images, everything.labels, decodable[positions], found.digest)
                               for positions in split)
    text = "\n".join(filter(None, [describe(index), *_remarks(images, found), classes_not_held_out(split, index)]))
    return Splits(train, validation, test, index.class_names, text)


def _decoded(index: Index, image_size: int, memory: int | None = None
             ) -> tuple[ImageCache, Index, np.ndarray, verify.Checked]:
    """Decode each image once, to check the file, and cache it for training.

    Values of more than 8 bits are scaled by one range for the whole data set, so they are decoded a second time. With
    the range of the data type, 12-bit images stored in 16 bits would be almost black; with a range for each image, a
    bright and a dark image would become the same.

    Returns:
        All images; the index of the decodable ones; the positions of these among all images, int64; and what the check
        has found.
    """
    images = ImageCache(index.root, index.paths, image_size, memory)
    found = verify.check_images(index, images.add, images.missing)
    if found.values:
        images = ImageCache(index.root, index.paths, image_size, memory, found.values)
        verify.check_images(index, images.add, images.missing)
    decodable = np.flatnonzero([path not in found.bad for path in index.paths])
    return images, drop_images(index, found.bad), decodable, found


def training_images(name: str, data: str, config: Any) -> int:
    """Return the most training images that a data set can have, as far as that is known without reading an image.

    Args:
        name: A name in the registry.
        data: As for `locate`.
        config: A lab's Config; the shares of its split and its seed are used, where it has them.

    Raises:
        LabError: The data set is not there, or cannot be split.
    """
    root, dataset = fetch.locate(name, data), registry.get(name)
    if not dataset.image_tree:
        return sys.maxsize
    if "Test" in dataset.required and predefined_split.train_and_test_folders(root):
        return int((~predefined_split.in_test(predefined_split.index_train_and_test(root))).sum())
    test_split, validation_split = (getattr(config, share, 0.0) for share in ("test_split", "validation_split"))
    return len(split_images(index_folder(root), test_split, validation_split, config.seed).train)


def _remarks(images: ImageCache, found: verify.Checked) -> list[str]:
    """Return lines on images with two names, and on what decoding did to the images."""
    lines = []
    if found.contradictory:
        lines.append(f"the same picture in two classes: {summarize(found.contradictory)}")
    if images.values:
        low, high = images.values
        lines.append(f"more than 8 bits per value: {low:g} to {high:g}, the range of all images, became 0 to 255")
    if len(flat := images.single_colour()):
        names = summarize([images.paths[row] for row in flat])
        lines.append(f"blank images (a single colour): {names}")
    return lines


def from_tree(root: Path, image_size: int, test_split: float, validation_split: float, seed: int) -> Splits:
    """Read a tree of images: `from_predefined_split` if it has a training and a test folder, else `from_folder`."""
    if predefined_split.train_and_test_folders(root):
        return from_predefined_split(root, image_size, validation_split, seed)
    return from_folder(root, image_size, test_split, validation_split, seed)


def from_predefined_split(root: Path, image_size: int, validation_split: float, seed: int) -> Splits:
    """Read a tree with its own test set (Training/CLASS, Test/CLASS); hold out validation images from its training.

    Args:
        root: The folder that holds the training and the test folder.
        image_size: Width and height in pixels to which images are resized.
        validation_split: Share of the training images of each class.
        seed: Seed of the split.

    Raises:
        LabError: As for `from_folder`, or the test has a class that the training lacks.
    """
    everything = predefined_split.index_train_and_test(root)
    images, index, decodable, found = _decoded(everything, image_size)
    in_test = predefined_split.in_test(index)
    rest = np.flatnonzero(~in_test)
    names = [index.paths[position] for position in rest]
    split = split_images((names, index.labels[rest]), 0.0, validation_split, seed)
    positions = (rest[split.train], rest[split.validation], np.flatnonzero(in_test))
    counts = [f"{len(each)} {name}" for each, name in zip(positions, ("training", "validation", "test"), strict=True)]
    text = "\n".join([describe(index), *_remarks(images, found), f"{', '.join(counts)} images"])
    train, validation, test = (Subset(images, everything.labels, decodable[each], found.digest) for each in positions)
    return Splits(train, validation, test, index.class_names, text)


def from_arrays(arrays: Arrays, validation_split: float, seed: int) -> Splits:
    """Split a data set that has its own test set: hold out validation images from its training images, per class.

    Args:
        arrays: The data set.
        validation_split: Share of the training images of each class.
        seed: Seed of the split.

    Raises:
        LabError: The share does not fit the classes.
    """
    ids = [f"{number}" for number in range(len(arrays.train_labels))]
    split = split_images((ids, arrays.train_labels), 0.0, validation_split, seed)
    train, validation = (Subset(arrays.train_images, arrays.train_labels, positions, arrays.digest)
                         for positions in (split.train, split.validation))
    test = Subset(arrays.test_images, arrays.test_labels, np.arange(len(arrays.test_labels)), arrays.digest)
    text = f"{len(train)} training, {len(validation)} validation and {len(test)} test images"
    text = f"{text} of {len(arrays.class_names)} classes"
    return Splits(train, validation, test, arrays.class_names, text)


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
    everything = Index(faces.root, ("face",), faces.paths, np.zeros(len(faces.paths), np.int64), {})
    images, index, decodable, found = _decoded(everything, image_size, memory=None if cached else 0)
    split = split_images((index.paths, index.labels), test_split, validation_split, seed)
    ages = faces.ages.astype(np.float32)
    left_out = faces.left_out | {"undecodable": len(everything) - len(index)}
    text = f"{len(index)} faces of {rows}, aged {ages[decodable].min():.0f} to {ages[decodable].max():.0f}; left out: "
    text += ", ".join(f"{count} {reason}" for reason, count in left_out.items())
    text, data = "\n".join([text, *_remarks(images, found)]), digest_of(found.digest, ages)
    train, validation, test = (Subset(images, ages, decodable[positions], data) for positions in split)
    return Splits(train, validation, test, (), text)


def from_noise(count: int, image_size: int, seed: int) -> Splits:
    """Return random images with random ages, all for training: the control experiment without input cost.

    Args:
        count: Number of images.
        image_size: Their width and height in pixels.
        seed: Seed of images and ages.
    """
    ages = np.random.default_rng(seed).integers(0, 101, count).astype(np.float32)
    noise, empty = Noise(count, image_size, seed), np.arange(0)
    train, validation, test = (Subset(noise, ages, each, "noise") for each in (np.arange(count), empty, empty))
    return Splits(train, validation, test, (), f"{count} random images, generated in memory")
