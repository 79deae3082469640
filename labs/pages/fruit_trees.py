"""Trees of synthetic fruits for lab 9: one with a large test set, and one whose test set leaks.

    python -m labs.pages.fruit_trees          makes both in the data folder, unless they are there
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from labs.datasets import synthetic
from labs.datasets.locks import make_folder_once
from labs.run import paths

TESTS = 170
"""Test images of each variety: 1,020 in all, so the standard error of an accuracy is at most 0.016."""
EMBEDDED_TESTS = 20
COPIES = 40
"""Training images of each variety whose copies are added to 20 test images: two thirds leak, as in Fruits-360."""
QUALITY = 60
"""JPEG quality of the copies. The originals have 90, so no copy has the bytes of its original."""


def large() -> Path:
    """Return a tree with the training images of the embedded data and 1,020 test images; make it the first time."""
    return _made("fruits-large", lambda home: synthetic.fruits360(home, TESTS))


def leaky() -> Path:
    """Return the embedded tree with copies of training images in its test set; make it the first time."""
    return _made("fruits-leaky", _write_leaky)


def _made(name: str, write: Callable[[Path], None]) -> Path:
    return make_folder_once(paths.data_dir() / name, f"generating {name}", write)


def _write_leaky(home: Path) -> None:
    """Write the embedded tree; some training images of each class are saved in Test again, under new names."""
    synthetic.fruits360(home, EMBEDDED_TESTS)
    for folder in sorted((home / "Training").iterdir()):
        names = sorted(path.name for path in folder.iterdir())
        for number, name in enumerate(np.random.default_rng(1).permutation(names)[:COPIES]):
            with Image.open(folder / name) as image:
                image.save(home / "Test" / folder.name / f"{100 + number}_100.jpg", quality=QUALITY)


if __name__ == "__main__":
    for tree in (large(), leaky()):
        print(tree)
