"""Assign images to training, validation and test, per class."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from labs.datasets.index import Index, summarize
from labs.datasets.low_discrepancy import points, threshold
from labs.run.errors import LabError
from labs.run.text import printable


@dataclasses.dataclass(frozen=True)
class Split:
    """Indices of the images of each subset, int64, ascending."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter((self.train, self.validation, self.test))


def split_images(images: Index | tuple[Sequence[str], np.ndarray], test_split: float, validation_split: float,
                 seed: int) -> Split:
    """Hold out test images, then validation images from the rest, per class and the same in every job.

    Each image has a fixed point of [0, 1) that depends on seed, class and name only (`low_discrepancy.points`): below
    `test_split` it is a test image, and so on. So an image keeps its subset when others are added or removed, which
    exact quotas could not promise. Shares are met within about one image in a class of numbered files, and on average
    for other names.

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
    values, labels = _points(images, seed)
    in_test = values < threshold(test_split)
    held_out = values < threshold(test_split + (1 - test_split) * validation_split)
    split = Split(*map(np.flatnonzero, (~held_out, held_out & ~in_test, in_test)))
    _check(split, images, labels, test_split, validation_split)
    return split


def classes_not_held_out(split: Split, index: Index) -> str:
    """Return a line that names the classes too small to have validation or test images; "" if there are none."""
    lines = []
    for subset, positions in (("validation", split.validation), ("test", split.test)):
        missing = np.setdiff1d(index.labels, index.labels[positions]) if len(positions) else ()
        if len(missing):
            lines.append(f"no {subset} image of {summarize([index.class_names[label] for label in missing])}")
    return "; ".join(lines)


def _points(images: Index | tuple[Sequence[str], np.ndarray], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return each image's point and its label."""
    if isinstance(images, Index):
        classes = (images.class_names[label] for label in images.labels.tolist())
        return points(images.paths, classes, seed), images.labels
    names, labels = images[0], np.asarray(images[1])
    return points(names, map(str, labels.tolist()), seed), labels


def _check(split: Split, images, labels: np.ndarray, test_split: float, validation_split: float) -> None:
    missing = np.setdiff1d(labels, labels[split.train])
    if len(missing):
        name = images.class_names[missing[0]] if isinstance(images, Index) else str(missing[0])
        raise LabError(f"class {printable(name)} is left without training images; add some or lower "
                       f"test_split {test_split} or validation_split {validation_split}")
    for subset, share in (("test", test_split), ("validation", validation_split)):
        if share and not len(getattr(split, subset)):
            raise LabError(f"{subset}_split {share} holds out none of {len(labels)} images; "
                           "use more images, or a larger share")
