"""Trees with their own test, and what of it is in the training."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from PIL import Image

from labs.datasets import duplicates, fetch, predefined_split, splits
from labs.run.errors import LabError


def picture(path, seed: int, turn: int = 0, quality: int = 90) -> None:
    """A smooth random picture, as photos are; `turn` shifts it by a number of pixels."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    smooth = np.asarray(Image.fromarray(coarse).resize((64, 64), Image.Resampling.BICUBIC))
    Image.fromarray(np.roll(smooth, turn, axis=1)).save(path, quality=quality)


@pytest.fixture(params=[("Training", "Test"), ("train", "test")])
def tree(tmp_path, request):
    """Two classes with 20 training and 5 test pictures each, none alike."""
    train, test = request.param
    for code, name in enumerate(("freshapples", "rottenapples")):
        for k in range(25):
            picture(tmp_path / (train if k < 20 else test) / name / f"{k}.jpg", 100 * code + k)
    return tmp_path


def test_the_trees_own_test_stays_the_test(tree):
    fruits = splits.from_tree(tree, 16, 0.5, 0.25, seed=1)
    assert (len(fruits.train) + len(fruits.validation), len(fruits.test)) == (40, 10)
    assert 8 <= len(fruits.validation) <= 12
    paths = fruits.train.images.paths
    assert {paths[k].split("/")[0].lower()[:5] for k in fruits.train.positions} == {"train"}
    assert {paths[k].split("/")[0].lower() for k in fruits.test.positions} == {"test"}
    assert fruits.class_names == ("freshapples", "rottenapples")
    for part in (fruits.train, fruits.validation, fruits.test):
        assert all(fruits.class_names[part.labels[k]] in paths[k] for k in part.positions)


def test_a_class_that_only_the_test_has_is_refused(tree):
    picture(predefined_split.train_and_test_folders(tree)["test"] / "pears" / "1.jpg", 7)
    picture(predefined_split.train_and_test_folders(tree)["test"] / "pears" / "2.jpg", 8)
    with pytest.raises(LabError, match=r"has the class pears, but .* has no images of it"):
        predefined_split.index_train_and_test(tree)


def test_what_lies_beside_the_two_folders_is_named(tree):
    picture(tree / "val" / "freshapples" / "1.jpg", 7)
    fruits = splits.from_tree(tree, 16, 0.0, 0.25, seed=1)
    assert "left out, beside the training and test folders: 1 (val)" in fruits.description


def test_a_tree_without_a_test_is_divided(tree):
    fruits = splits.from_tree(predefined_split.train_and_test_folders(tree)["train"], 16, 0.25, 0.25, seed=1)
    assert 8 <= len(fruits.test) <= 12


def leak(tree):
    index = predefined_split.index_train_and_test(tree)
    tested = predefined_split.in_test(index)
    train, test = ([path for path, is_test in zip(index.paths, tested, strict=True) if is_test == wanted]
                   for wanted in (False, True))
    return duplicates.find_test_leakage(index.root, train, test)


def test_different_pictures_are_no_leak(tree):
    result = leak(tree)
    assert (result.tests, result.identical, result.alike) == (10, (), ())
    assert str(result) == "leak check: none of the 10 test images is in the training set"


def test_a_copy_and_one_saved_again_are_found_and_told_apart(tree):
    folders = predefined_split.train_and_test_folders(tree)
    train, test = folders["train"], folders["test"]
    shutil.copy(train / "freshapples/3.jpg", test / "freshapples/copy.jpg")
    picture(test / "rottenapples/again.jpg", 100 + 4, quality=60)
    picture(test / "rottenapples/moved.jpg", 100 + 5, turn=30)
    result = leak(tree)
    names = train.name, test.name
    assert result.identical == ((f"{names[1]}/freshapples/copy.jpg", f"{names[0]}/freshapples/3.jpg"),)
    assert result.alike == ((f"{names[1]}/rottenapples/again.jpg", f"{names[0]}/rottenapples/4.jpg"),)
    assert "of 13 test images, 1 are identical to a training image, 1 nearly identical" in str(result)
    assert str(result).endswith("the test accuracy partly measures memory")


def test_one_look_alike_in_120_synthetic_fruits_does_not_prove_a_leak():
    """No two synthetic fruits are copies; the hash, of 64 bits, takes one pair for alike all the same."""
    result = leak(fetch.locate("fruits360", "embedded"))
    assert (result.tests, result.identical, len(result.alike)) == (120, (), 1)
    assert str(result).endswith("these few may be false alarms of the hash: look at the images")


def test_many_are_compared_in_blocks(monkeypatch):
    monkeypatch.setattr(duplicates, "BLOCK", 3)
    signs = np.where(np.random.default_rng(0).random((20, 64)) < 0.5, 1, -1).astype(np.float32)
    test = signs[[4, 19, 0, 7, 7]].copy()
    test[1, :2] *= -1  # Two bits differ.
    test[2, :3] *= -1  # Three.
    assert duplicates._nearest(signs, test).tolist() == [4, 19, -1, 7, 7]


def test_the_real_fruits_leak(samples):
    """Fruits-360's test pictures are other frames of the films that its training pictures are from."""
    result = leak(samples / "fruits-sample")
    assert result.tests == 320
    assert len(result.alike) > 100
    assert str(result).endswith("the test accuracy partly measures memory")
