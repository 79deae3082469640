"""Trees that bring their own test: Training/CLASS/..., Test/CLASS/..., as Fruits-360 and many fruit sets have it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from labs.datasets import folders
from labs.run.errors import LabError

NAMES = {"train": "train", "training": "train", "test": "test", "testing": "test"}


def halves(root: Path) -> dict[str, Path]:
    """Return the folders of training and test images by "train" and "test", where a tree has both; else nothing."""
    found = {NAMES[each.name.lower()]: each for each in sorted(Path(root).iterdir(), reverse=True)
             if each.is_dir() and each.name.lower() in NAMES}
    return found if len(found) == 2 else {}


def index(root: Path) -> folders.Index:
    """List the images of both halves, those for training first, with paths from the folder above the two.

    Raises:
        LabError: The test has a class that the training has not.
    """
    both = halves(root)
    train, test = folders.index(both["train"]), folders.index(both["test"])
    unknown = sorted(set(test.class_names) - set(train.class_names))
    if unknown:
        raise LabError(f"{both['test']} has the class {folders.printable(unknown[0])}, of which {both['train']} has "
                       "nothing to learn from; add it there or remove it here")
    number = {name: label for label, name in enumerate(train.class_names)}
    labels = np.array([number[name] for name in test.class_names])[test.labels]
    paths = [f"{part.root.name}/{path}" for part in (train, test) for path in part.paths]
    strays = {reason: [*train.strays.get(reason, []), *test.strays.get(reason, [])]
              for reason in {**train.strays, **test.strays}}
    others = sorted({each.name for each in Path(root).iterdir()} - {train.root.name, test.root.name})
    if others:  # A folder of validation images, say: the lab holds out its own.
        strays["beside the training and test folders"] = others
    return folders.Index(train.root.parent, train.class_names, paths, np.concatenate([train.labels, labels]), strays)


def tested(index: folders.Index) -> np.ndarray:
    """Return which images are for the test, bool [n]."""
    return np.array([NAMES[path.partition("/")[0].lower()] == "test" for path in index.paths])
