"""Any tree of one folder per class is listed alike everywhere, and what cannot be used is named."""

import os

import pytest

from labs.datasets import splits
from labs.datasets.index import index_folder
from labs.run.errors import LabError


def test_what_is_no_image_is_left_out_and_named(tree):
    root = tree({"b": 2, "a": 1})
    (root / "a" / "2.JPEG").touch()
    (root / "loose.jpg").touch()
    (root / ".git").mkdir()
    (root / "empty").mkdir()
    (root / "up").symlink_to("..")
    (root / "a" / "deeper").mkdir()
    (root / "a" / "not\nan image.txt").touch()
    (root / "a" / "gone.png").symlink_to("nowhere")
    os.mkfifo(root / "b" / "pipe.png")
    result = index_folder(root)
    assert result.class_names == ("a", "b")
    assert result.paths == ["a/0001.png", "a/2.JPEG", "b/0001.png", "b/0002.png"]
    assert result.labels.tolist() == [0, 0, 1, 1]
    assert result.skipped == ["a/deeper", "a/gone.png", "a/not\nan image.txt", "b/pipe.png", "empty", "loose.jpg", "up"]
    (root / "a" / "2.JPEG").unlink()
    description = splits.from_folder(root, 16, 0, 0, seed=1).description
    assert r"left out: 7 (a/deeper, a/gone.png, a/not\nan image.txt, ...)" in description


@pytest.mark.parametrize(("folders", "says"), [
    ("test_images train_images", r"test_images and train_images in .*tree are subsets of a data set"),
    ("train test1", r"make a folder for each class in .*tree/train, move its images there, and use --data"),
    ("archive/fruits/a archive/fruits/b", r"no images in the folders of .*tree; .* name the folder of the class"),
])
def test_a_tree_that_cannot_be_classified_is_refused_with_the_cure(tree, folders, says):
    root = tree(dict.fromkeys(folders.split(), 2))
    root.mkdir(exist_ok=True)
    with pytest.raises(LabError, match=says):
        index_folder(root)


def test_ordinary_names_are_classes(tree):
    for names in (("plane", "train"), ("train_freight", "train_passenger"), ("valley", "valve"), ("dev_bad", "dev_ok")):
        root = tree(dict.fromkeys(names, 2))
        assert {*names} <= {*index_folder(root).class_names}


def test_the_trees_own_test_stays_the_test(tree):
    root = tree({"Training/a": 20, "Training/b": 20, "test/b": 5, "test/a": 5, "val/a": 1})
    read = splits.from_tree(root, 16, 0.5, 0.25, seed=1)
    paths = read.train.images.paths
    assert {paths[k].split("/")[0] for part in (read.train, read.validation) for k in part.positions} == {"Training"}
    assert {paths[k].split("/")[0] for k in read.test.positions} == {"test"}
    assert (len(read.train) + len(read.validation), len(read.test)) == (40, 10)
    assert 8 <= len(read.validation) <= 12
    for part in (read.train, read.validation, read.test):
        assert all(read.class_names[part.labels[k]] == paths[k].split("/")[1] for k in part.positions)
    assert "left out: 1 (val)" in read.description
    assert 8 <= len(splits.from_tree(root / "Training", 16, 0.25, 0.25, seed=1).test) <= 12, "no test: it is split"
    (root / "test" / "b").rename(root / "test" / "c")
    with pytest.raises(LabError, match=r"has the class c, but .* has no images of it"):
        splits.from_tree(root, 16, 0.5, 0.25, seed=1)
