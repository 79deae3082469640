"""Any tree of one folder per class is listed alike everywhere, and what cannot be used is named."""

import os
import re
import tempfile
from pathlib import Path

import pytest

from labs.datasets import splits
from labs.datasets.index import describe, drop_images, index_folder, train_and_test_folders
from labs.run.errors import LabError


def test_real_tree_with_its_strays(caltech):
    result = index_folder(caltech)
    assert (len(result), len(result.class_names)) == (1240, 21)
    assert describe(result).splitlines() == [
        "1240 images in 21 classes (from 40 in 257.clutter to 60 in 001.airplanes)",
        "left out as intended, strays of Caltech256: 2 (005.car-side/greg, 017.starfish/RENAME2)",
        "left out, no extension: 1 (257.clutter/tmp)"]


def test_what_is_no_image_is_left_out_and_named(tree):
    root = tree({"b": 2, "a": 1})
    (root / "a" / "2.JPEG").touch()
    (root / "readme.txt").touch()
    (root / "loose.jpg").touch()
    (root / ".git").mkdir()
    (root / "empty").mkdir()
    (root / "up").symlink_to("..")
    (root / "a" / "deeper").mkdir()
    (root / "a" / "RENAME2").touch()
    (root / "a" / "not\nan image.txt").touch()
    (root / "a" / "gone.png").symlink_to("nowhere")
    (root / "a" / "circle.png").symlink_to("circle.png")
    os.mkfifo(root / "b" / "pipe.png")
    result = index_folder(root)
    assert result.class_names == ("a", "b")
    assert result.paths == ["a/0001.png", "a/2.JPEG", "b/0001.png", "b/0002.png"]
    assert result.labels.tolist() == [0, 0, 1, 1]
    assert result.skipped == {
        "not an image": ["a/not\nan image.txt", "readme.txt"],
        "outside a class folder": ["loose.jpg"],
        "hidden": [".git"],
        "no image directly in it": ["empty", "up"],
        "folder": ["a/deeper", "up/tree"],
        "no extension": ["a/RENAME2"],
        "broken link or special file": ["a/circle.png", "a/gone.png", "b/pipe.png"],
    }
    assert r"left out, not an image: 2 (a/not\nan image.txt, readme.txt)" in describe(result)


def sort_into_classes(root):
    """Make a class folder for each image of the training folder: Kaggle has all of them in one."""
    for image, name in zip(sorted((root / "train").iterdir()), "ab", strict=True):
        (root / "train" / name).mkdir()
        image.rename(root / "train" / name / image.name)


def lift(root):
    """Move the images that lie deeper into the folders of the tree."""
    for number, image in enumerate(sorted(root.glob("*/*/*"))):
        image.rename(root / image.relative_to(root).parts[0] / f"moved-{number}.png")


INNER = r"are the class folders in (.*tree/{})\?$"
DEEP = "{}/0001.png lies too deep: put all images of a class directly into one folder in .*tree"


@pytest.mark.parametrize(("folders", "hint", "follow"), [
    ("test_images train_images", r"test_images and train_images in .*tree are subsets of a data set", None),
    ("train test1", r"test1 and train in .*tree are subsets of a data set, not classes; make a folder for each "
     r"class in .*tree/train, .* --data (.*)$", sort_into_classes),
    ("test1 train/a train/b", r"one class only \(test1\); " + INNER.format("train"), None),
    ("train/a train/b validation/a validation/b", INNER.format("train"), None),
    ("set/train/a set/train/b set/val/a set/val/b", INNER.format("set/train"), None),
    ("training_set/training_set/a training_set/training_set/b test_set/test_set/a test_set/test_set/b",
     INNER.format("training_set/training_set"), None),
    ("archive/fruits/a archive/fruits/b __MACOSX/.fruits/a", INNER.format("archive/fruits"), None),
    ("a b/x b/y", r"one class only \(a\); " + DEEP.format("b/x"), lift),
    ("a/x a/y b/x", DEEP.format("a/x"), lift),
    ("a/x b/y", DEEP.format("a/x"), lift),
    ("a/train a/test b/train b/test", DEEP.format("a/test"), lift),
    ("a/train a/test", DEEP.format("a/test"), None),
    ("one/a one/b two/a two/b", DEEP.format("one/a"), None),
    ("train/a/images train/b/images test/a/images", DEEP.format("test/a/images"), None),
])
def test_a_misread_layout_is_refused_and_its_cure_works(tree, folders, hint, follow):
    root = tree(dict.fromkeys(folders.split(), 2))
    with pytest.raises(LabError, match=hint) as refused:
        index_folder(root)
    if follow:
        follow(root)
    found = re.search(hint, str(refused.value)).groups()
    if found or follow:
        assert index_folder(*found or [root]).class_names == ("a", "b")


@pytest.mark.parametrize(("folder", "says"), [
    ("a", r"the images are in .*; put the images of each class into its own folder"),
    ("nowhere", r"cannot read folder .*nowhere \(No such file or directory\); check"),
    ("bare", r"no images in the folders of .*; put the images"),
    (".", r"has images of one class only \(a\); put"),
])
def test_trees_that_cannot_train(tree, folder, says):
    root = tree({"a": 3})
    (root / "bare").mkdir()
    with pytest.raises(LabError, match=says):
        index_folder(root / folder)


def test_ordinary_names_are_classes(tree):
    assert index_folder(tree({"train": 1, "plane": 1})).class_names == ("plane", "train")


def test_a_class_folder_that_is_not_utf_8_is_refused(tree):
    root = tree({"a": 1, "naive": 1})
    os.rename(os.fsencode(root) + b"/naive", os.fsencode(root) + b"/na\xefve")
    with pytest.raises(LabError, match=r"the class folder 'na\\udcefve' is not UTF-8; rename it"):
        index_folder(root)


def test_a_folder_that_may_not_be_read_is_an_error():
    with tempfile.TemporaryDirectory(dir="/tmp") as root:
        root = Path(root)
        root.chmod(0o755)
        (root / "b").mkdir(mode=0)
        me = os.geteuid()
        if me == 0:  # Root may read everything.
            os.seteuid(65534)
        try:
            with pytest.raises(LabError, match=r"cannot read folder .*/b \(Permission denied\); check"):
                index_folder(root)
        finally:
            os.seteuid(me)


def test_a_class_without_decodable_images_is_an_error(tree):
    with pytest.raises(LabError, match="no image of class a can be decoded"):
        drop_images(index_folder(tree({"a": 2, "b": 2})), ["a/0001.png", "a/0002.png"])


# --- trees with their own test ---


@pytest.mark.parametrize(("train", "test"), [("Training", "Test"), ("train", "test")])
def test_the_trees_own_test_stays_the_test(tree, train, test):
    root = tree({f"{train}/a": 20, f"{train}/b": 20, f"{test}/b": 5, f"{test}/a": 5, "val/a": 1})
    read = splits.from_tree(root, 16, 0.5, 0.25, seed=1)
    paths = read.train.images.paths
    assert {paths[k].split("/")[0] for part in (read.train, read.validation) for k in part.positions} == {train}
    assert {paths[k].split("/")[0] for k in read.test.positions} == {test}
    assert (len(read.train) + len(read.validation), len(read.test)) == (40, 10)
    assert 8 <= len(read.validation) <= 12
    for part in (read.train, read.validation, read.test):
        assert all(read.class_names[part.labels[k]] == paths[k].split("/")[1] for k in part.positions)
    assert "left out, beside the training and test folders: 1 (val)" in read.description
    assert 8 <= len(splits.from_tree(root / train, 16, 0.25, 0.25, seed=1).test) <= 12, "no test: it is divided"


def test_a_path_that_is_too_high_keeps_the_trees_own_test(tree):
    root = tree(dict.fromkeys(("set/Training/a", "set/Training/b", "set/Test/a", "set/Test/b"), 9))
    with pytest.raises(LabError, match=INNER.format("set")) as refused:
        splits.from_tree(root, 16, 0.5, 0.25, seed=1)
    read = splits.from_tree(Path(re.search(INNER.format("set"), str(refused.value))[1]), 16, 0.5, 0.25, seed=1)
    assert len(read.test) == 18
    deeper = tree(dict.fromkeys(("train/set/a", "train/set/b", "test/set/a"), 1), root=root / "deeper")
    with pytest.raises(LabError, match=DEEP.format("set/a")):  # One folder would lose the test.
        splits.from_tree(deeper, 16, 0.5, 0.25, seed=1)


def test_a_class_that_only_the_test_has_is_refused(tree):
    root = tree({"train/a": 2, "train/b": 2, "test/a": 1, "test/c": 1})
    assert train_and_test_folders(root).keys() == {"train", "test"}
    with pytest.raises(LabError, match=r"has the class c, but .* has no images of it"):
        splits.from_tree(root, 16, 0.5, 0.25, seed=1)
