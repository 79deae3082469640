"""Trees that come with their own test set: Training/CLASS/..., Test/CLASS/..., such as Fruits-360."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from labs.datasets.index import Index, alike, index_folder
from labs.run.errors import LabError
from labs.run.text import printable

NAMES = {"train": "train", "training": "train", "test": "test", "testing": "test"}


def train_and_test_folders(root: Path) -> dict[str, Path]:
    """Return the folders of training and test images as "train" and "test"; {} unless the tree has both."""
    folders = {NAMES[path.name.lower()]: path for path in sorted(Path(root).iterdir(), reverse=True)
               if path.is_dir() and path.name.lower() in NAMES}
    return folders if len(folders) == 2 else {}


def index_train_and_test(root: Path) -> Index:
    """List the images of both folders, training images first, with paths relative to the folder above the two.

    Raises:
        LabError: The test folder has a class that the training folder lacks.
    """
    folders = train_and_test_folders(root)
    train, test = index_folder(folders["train"]), index_folder(folders["test"])
    unknown = sorted(set(test.class_names) - set(train.class_names))
    if problem := alike([*train.class_names, *unknown]):
        raise LabError(f"in {train.root.name} and {test.root.name}, {problem}")
    if unknown:
        raise LabError(f"{folders['test']} has the class {printable(unknown[0])}, but {folders['train']} has no "
                       "images of it; add some there or remove the class here")
    label_of = {name: label for label, name in enumerate(train.class_names)}
    test_labels = np.array([label_of[name] for name in test.class_names])[test.labels]
    paths = [f"{index.root.name}/{path}" for index in (train, test) for path in index.paths]
    skipped = {reason: [*train.skipped.get(reason, []), *test.skipped.get(reason, [])]
               for reason in {**train.skipped, **test.skipped}}
    others = sorted({path.name for path in Path(root).iterdir()} - {train.root.name, test.root.name})
    if others:  # For instance a folder of validation images: the lab holds out its own.
        skipped["beside the training and test folders"] = others
    labels = np.concatenate([train.labels, test_labels])
    return Index(train.root.parent, train.class_names, paths, labels, skipped)


def in_test(index: Index) -> np.ndarray:
    """Return which images of such a tree are test images, bool [n]."""
    return np.array([NAMES[path.partition("/")[0].lower()] == "test" for path in index.paths])
