"""Any tree of one folder per class is listed alike everywhere, and what cannot be used is named."""

import os

import pytest

from labs.datasets import splits
from labs.datasets.index import drop_images, index_folder
from labs.run.errors import LabError


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
        "broken link or special file": ["a/gone.png", "b/pipe.png"],
    }
    (root / "a" / "2.JPEG").unlink()
    assert r"left out, not an image: 2 (a/not\nan image.txt, readme.txt)" in splits.from_folder(
        root, 16, 0, 0, seed=1).description


@pytest.mark.parametrize(("folders", "says"), [
    ("test_images train_images", r"test_images and train_images in .*tree are subsets of a data set"),
    ("train test1", r"make a folder for each class in .*tree/train, move its images there, and use --data"),
    ("train/a train/b validation/a validation/b", r"are the class folders in .*tree/train\?"),
    ("archive/fruits/a archive/fruits/b __MACOSX/.fruits/a", r"are the class folders in .*tree/archive/fruits\?"),
    ("a b/x b/y", r"one class only \(a\); are the class folders in .*tree/b\?"),
    ("a", r"has images of one class only \(a\); put the images of each class directly into its own folder"),
    ("", r"no images in the folders of .*tree; put the images of each class directly"),
])
def test_a_tree_that_cannot_be_classified_is_refused_with_the_cure(tree, folders, says):
    root = tree(dict.fromkeys(folders.split(), 2))
    root.mkdir(exist_ok=True)
    with pytest.raises(LabError, match=says):
        index_folder(root)


def test_ordinary_names_are_classes(tree):
    assert index_folder(tree({"train": 1, "plane": 1})).class_names == ("plane", "train")


def test_a_folder_that_cannot_be_read_and_a_class_that_cannot_be_decoded_are_refused(tree):
    root = tree({"a": 2, "b": 2})
    with pytest.raises(LabError, match=r"cannot read folder .*nowhere \(No such file or directory\); check"):
        index_folder(root / "nowhere")
    with pytest.raises(LabError, match="no image of class a can be decoded"):
        drop_images(index_folder(root), ["a/0001.png", "a/0002.png"])


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
    assert 8 <= len(splits.from_tree(root / train, 16, 0.25, 0.25, seed=1).test) <= 12, "no test: it is split"


def test_a_class_that_only_the_test_has_is_refused(tree):
    root = tree({"train/a": 2, "train/b": 2, "test/a": 1, "test/c": 1})
    with pytest.raises(LabError, match=r"has the class c, but .* has no images of it"):
        splits.from_tree(root, 16, 0.5, 0.25, seed=1)
