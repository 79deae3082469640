"""List the images of a tree with one folder per class, or with Training/CLASS and Test/CLASS, as Fruits-360 has.

No image is opened here.
"""

import dataclasses
import itertools
import os
import re
from pathlib import Path

import numpy as np

from labs.run.errors import LabError, printable

EXTENSIONS = {"jpg", "jpeg", "jpe", "jfif", "png", "gif", "bmp", "webp", "tif", "tiff", "ppm", "pgm"}
SUBSETS = {"train": "train", "training": "train", "test": "test", "testing": "test"}
# Such folders are no classes: "train", "test_images", "val2", but "train_freight" is one.
SUBSET = re.compile(r"((images?|set|data|train(ing)?|test(ing)?|val(id(ation)?)?|dev|eval)([ _-]|(?=\d)|$)?)+\d*")


@dataclasses.dataclass(frozen=True)
class Index:
    """The images of a tree, sorted by class and name; an image is known by its position in `paths`."""

    root: Path
    class_names: tuple[str, ...]
    paths: list[str]  # Relative to the root: "001.ak47/001_0001.jpg".
    labels: np.ndarray  # Position of each image's class in `class_names`, int64 [n].
    skipped: list[str]  # The other files and folders, for instance deeper ones.

    def __len__(self) -> int:
        return len(self.paths)


def index_folder(root: str | os.PathLike) -> Index:
    """List the images of a tree: each folder in `root` that holds images is a class. Deeper folders are not entered."""
    root = Path(root).absolute()
    classes: dict[str, list[str]] = {}
    skipped = []
    for entry in _entries(root):
        files = _entries(entry.path) if entry.is_dir() else []
        images = [f"{entry.name}/{file.name}" for file in files if _is_image(file.name) and file.is_file()]
        if images:
            classes[entry.name] = images
            skipped += sorted({f"{entry.name}/{file.name}" for file in files} - set(images))
        else:
            skipped.append(entry.name)
    _check_classes(root, list(classes))
    labels = np.repeat(np.arange(len(classes)), [len(images) for images in classes.values()])
    return Index(root, tuple(classes), list(itertools.chain(*classes.values())), labels, skipped)


def _entries(folder: str | Path) -> list[os.DirEntry]:
    """Return what a folder holds, in an order that depends on neither file system nor locale."""
    with os.scandir(folder) as entries:
        return sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)


def _is_image(name: str) -> bool:
    return "." in name and name.rpartition(".")[2].lower() in EXTENSIONS


def _check_classes(root: Path, names: list[str]) -> None:
    if len(names) < 2:
        cause = (f"{printable(root)} has images of one class only ({printable(names[0])})" if names else
                 f"no images in the folders of {printable(root)}")
        raise LabError(f"{cause}; put the images of each class directly into its own folder, or name the folder of "
                       "the class folders")
    if len({name.lower().rstrip("0123456789 _-") for name in names}) > 1 and all(
            SUBSET.fullmatch(name.lower()) for name in names):
        folder = printable(root / next((name for name in names if name.lower().startswith("train")), names[0]))
        raise LabError(f"{' and '.join(map(printable, names))} in {printable(root)} are subsets of a data set, not "
                       f"classes; make a folder for each class in {folder}, move its images there, and use "
                       f"--data {folder}")


def train_and_test_folders(root: Path) -> dict[str, Path]:
    """Return the folders of training and test images as "train" and "test"; {} unless the tree has both."""
    folders = {SUBSETS[path.name.lower()]: path for path in sorted(Path(root).iterdir(), reverse=True)
               if path.is_dir() and path.name.lower() in SUBSETS}
    return folders if len(folders) == 2 else {}


def index_train_and_test(root: Path) -> Index:
    """List the images of both folders, training images first, with paths relative to the folder above the two."""
    folders = train_and_test_folders(root)
    train, test = index_folder(folders["train"]), index_folder(folders["test"])
    if unknown := sorted(set(test.class_names) - set(train.class_names)):
        raise LabError(f"{folders['test']} has the class {printable(unknown[0])}, but {folders['train']} has no "
                       "images of it; add some there or remove the class here")
    test_labels = np.array([train.class_names.index(name) for name in test.class_names])[test.labels]
    paths = [f"{index.root.name}/{path}" for index in (train, test) for path in index.paths]
    # Beside the two folders there may be one of validation images: the lab holds out its own.
    skipped = sorted({path.name for path in Path(root).iterdir()} - {train.root.name, test.root.name})
    skipped += [f"{index.root.name}/{name}" for index in (train, test) for name in index.skipped]
    return Index(train.root.parent, train.class_names, paths, np.concatenate([train.labels, test_labels]), skipped)


def in_test(index: Index) -> np.ndarray:
    """Return which images of such a tree are test images, bool [n]."""
    return np.array([SUBSETS[path.partition("/")[0].lower()] == "test" for path in index.paths])
