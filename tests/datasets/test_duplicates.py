"""Test images that are also training images are found."""

import shutil

import numpy as np
from PIL import Image

from labs.datasets import duplicates
from labs.datasets.index import in_test, index_train_and_test


def write_image(path, seed: int, shift: int = 0, quality: int = 90) -> None:
    """Write a smooth random image, as photos are; `shift` moves it by a number of pixels."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    smooth = np.asarray(Image.fromarray(coarse).resize((64, 64), Image.Resampling.BICUBIC))
    Image.fromarray(np.roll(smooth, shift, axis=1)).save(path, quality=quality)


def find_leakage(tree):
    index = index_train_and_test(tree)
    train, test = ([path for path, is_test in zip(index.paths, in_test(index), strict=True) if is_test == wanted]
                   for wanted in (False, True))
    return duplicates.find_test_leakage(index.root, train, test)


def test_a_copy_and_one_saved_again_are_found_and_told_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(duplicates, "BLOCK", 3)  # Compared in blocks.
    for code, name in enumerate(("fresh", "rotten")):
        for k in range(25):
            write_image(tmp_path / ("train" if k < 20 else "test") / name / f"{k}.jpg", 100 * code + k)
    assert str(find_leakage(tmp_path)) == "leak check: none of the 10 test images is in the training set"
    shutil.copy(tmp_path / "train/fresh/3.jpg", tmp_path / "test/fresh/copy.jpg")
    write_image(tmp_path / "test/rotten/again.jpg", 100 + 4, quality=60)
    write_image(tmp_path / "test/rotten/moved.jpg", 100 + 5, shift=30)
    leak = find_leakage(tmp_path)
    assert leak.identical == (("test/fresh/copy.jpg", "train/fresh/3.jpg"),)
    assert leak.alike == (("test/rotten/again.jpg", "train/rotten/4.jpg"),)
    assert leak.serious
