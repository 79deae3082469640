"""Any tree of one folder per class is listed alike everywhere, and what cannot be used is named."""

import os
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest

from labs.datasets.index import describe, drop_images, index_folder
from labs.datasets.split import split_images
from labs.run.errors import LabError


def test_images_are_listed_by_class_and_name(tree):
    result = index_folder(tree({"dog": 2, "cat": 1}))
    assert result.class_names == ("cat", "dog")
    assert result.paths == ["cat/0001.png", "dog/0001.png", "dog/0002.png"]
    assert result.labels.tolist() == [0, 1, 1]
    assert result.labels.dtype == np.int64
    assert len(result) == 3


def test_real_tree_with_its_strays(caltech):
    result = index_folder(caltech)
    assert (len(result), len(result.class_names)) == (1240, 21)
    assert result.skipped == {
        "folder": ["005.car-side/greg"],
        "no extension": ["017.starfish/RENAME2", "257.clutter/tmp"],
    }
    assert "1240 images in 21 classes (from 40 in 257.clutter to 60" in describe(result)
    assert describe(result).splitlines()[1:] == [
        "left out as intended, strays of Caltech256: 2 (005.car-side/greg, 017.starfish/RENAME2)",
        "left out, no extension: 1 (257.clutter/tmp)"]


def test_strays_are_counted_by_name_and_left_out(tree):
    root = tree({"a": 1, "b": 1})
    (root / "readme.txt").touch()
    (root / "loose.jpg").touch()
    (root / ".git").mkdir()
    (root / "empty").mkdir()
    (root / "a" / "deeper").mkdir()
    (root / "a" / "RENAME2").touch()
    (root / "a" / "notes.docx").touch()
    (root / "a" / "._0001.png").touch()
    (root / "a" / "gone.png").symlink_to("nowhere")
    (root / "a" / "circle.png").symlink_to("circle.png")
    os.mkfifo(root / "b" / "pipe.png")
    result = index_folder(root)
    assert result.paths == ["a/0001.png", "b/0001.png"]
    assert result.skipped == {
        "not an image": ["a/notes.docx", "readme.txt"],
        "outside a class folder": ["loose.jpg"],
        "hidden": [".git", "a/._0001.png"],
        "folder without images": ["empty"],
        "folder": ["a/deeper"],
        "no extension": ["a/RENAME2"],
        "broken link or special file": ["a/circle.png", "a/gone.png", "b/pipe.png"],
    }


def test_links_to_folders_are_classes_and_circles_end(tree, tmp_path):
    elsewhere = tree({"real": 2}, root=tmp_path / "elsewhere")
    root = tree({"a": 1})
    (root / "linked").symlink_to(elsewhere / "real")
    (root / "up").symlink_to("..")
    (root / "a" / "again").symlink_to("..")
    result = index_folder(root)
    assert result.class_names == ("a", "linked")
    assert result.skipped == {"folder": ["a/again", "up/elsewhere", "up/tree"], "folder without images": ["up"]}


def test_strange_names(tree):
    names = ["a b", "äöü 猫", "line\nbreak", "Apple", "apple"]
    root = tree(dict.fromkeys(names, 1))
    (root / "Apple" / "not\nan image.txt").touch()
    result = index_folder(root)
    assert sorted(result.class_names) == sorted(names)
    text = describe(result)
    assert r"left out, not an image: 1 (Apple/not\nan image.txt)" in text
    assert "names that differ only in case: 2 (Apple, apple)" in text
    assert text.encode()  # Can be printed.
    assert split_images(result, 0, 0, 1).train.tolist() == list(range(5))


@pytest.mark.parametrize("extension", ["JPG", "jpeg", "Png", "tiff"])
def test_extension_in_any_case(tree, extension):
    root = tree({"a": 1, "b": 1})
    (root / "a" / f"x.{extension}").touch()
    assert f"a/x.{extension}" in index_folder(root).paths


def test_trees_that_cannot_train(tree, tmp_path):
    root = tree({"inner/a": 1, "inner/b": 1})
    with pytest.raises(LabError, match=r"are the class folders in .*/inner\?"):
        index_folder(root)
    with pytest.raises(LabError, match=r"the images are in .*; put the images of each class into its own folder"):
        index_folder(root / "inner" / "a")
    with pytest.raises(LabError, match=r"cannot read folder .*nowhere \(No such file or directory\); check"):
        index_folder(tmp_path / "nowhere")
    (tmp_path / "bare").mkdir()
    with pytest.raises(LabError, match=r"no images in the folders of .*; put the images"):
        index_folder(tmp_path / "bare")
    with pytest.raises(LabError, match=r"has images of one class only \(a\)"):
        index_folder(tree({"a": 3}, root=tmp_path / "one"))


def move_up(folder):
    for image in folder.iterdir():
        image.rename(folder.parent / image.name)


def sort_into_classes(root):
    for image, name in zip(sorted((root / "train").iterdir()), "ab", strict=True):
        (root / "train" / name).mkdir()
        image.rename(root / "train" / name / image.name)


@pytest.mark.parametrize(("folders", "hint", "follow"), [
    # Kaggle's: all training images in one folder.
    (["train", "test1"], r"test1 and train in .*tree are subsets of a data set, not classes; make a folder for each "
     r"class in .*tree/train, .* --data (.*)$", sort_into_classes),
    (["Images_Test", "Images_Train 2"], "are subsets of a data set", None),
    (["images", "masks"], "are subsets of a data set", None),
    (["test1", "train/a", "train/b"], r"one class only \(test1\); are the class folders in (.*tree/train)\?", None),
    (["train/a", "train/b", "validation/a", "validation/b"], r"are the class folders in (.*tree/train)\?", None),
    (["archive/fruits/a", "archive/fruits/b"], r"are the class folders in (.*tree/archive/fruits)\?", None),
    (["a/x", "b/y"], r"those of .*tree/a/x are one folder too deep; .* into its own folder, here into .*tree/a$",
     lambda root: [move_up(root / name) for name in ("a/x", "b/y")]),
    (["a/x", "a/y", "b/z"], r"tree/a/[xy] are one folder too deep", None),  # Its folder a is no set of two classes.
    (["a/x"], r"tree/a/x are one folder too deep", None),
    (["images"], r"one class only \(images\); put the images of each class into its own folder \(labels.csv may list",
     None),
    (["caf\u00e9", "cafe\u0301"], r"folders 'cafe\\u0301' and 'caf\\xe9' look alike", None),
    (["cat", "cat "], r"'cat' and 'cat ' look alike", None),
    (["cat", "c\u200bat", "dog"], r"'cat' and 'c\\u200bat' look alike", None),
])
def test_a_misread_layout_is_refused_and_its_cure_works(tree, folders, hint, follow):
    root = tree(dict.fromkeys(folders, 2))
    (root / "labels.csv").touch()
    with pytest.raises(LabError, match=hint) as refused:
        index_folder(root)
    named = re.search(hint, str(refused.value))
    if follow:
        follow(root)
    if follow or named.groups():
        assert index_folder(named[1] if named.groups() else root).class_names == ("a", "b")


@pytest.mark.parametrize("names", [("train", "plane"), ("label_0", "label_1"), ("test1", "test2"), ("val", "evil")])
def test_ordinary_names_are_classes(tree, names):
    index = index_folder(tree(dict.fromkeys(names, 1)))
    assert index.class_names == tuple(sorted(names))
    remark = f"classes named like a subset: 1 ({names[0]})" in describe(index)
    assert remark == (names[0] in ("train", "val")), "perhaps images without a class"


def test_a_class_folder_that_is_not_utf_8_is_refused(tree):
    root = tree({"a": 1, "naive": 1})
    os.rename(os.fsencode(root) + b"/naive", os.fsencode(root) + b"/na\xefve")
    with pytest.raises(LabError, match=r"the class folder 'na\\udcefve' is not UTF-8, .* rename it"):
        index_folder(root)


def test_a_folder_that_may_not_be_read_is_an_error():
    with tempfile.TemporaryDirectory(dir="/tmp") as root:
        root = Path(root)
        root.chmod(0o755)
        for name in ("a", "b"):
            (root / name).mkdir()
            (root / name / "1.png").touch()
        (root / "b").chmod(0)
        me = os.geteuid()
        if me == 0:  # Root may read everything.
            os.seteuid(65534)
        try:
            with pytest.raises(LabError, match=r"cannot read folder .*/b \(Permission denied\); check"):
                index_folder(root)
        finally:
            os.seteuid(me)


def test_undecodable_images_are_taken_out_and_told(tree):
    result = index_folder(tree({"a": 2, "b": 2}))
    rest = drop_images(result, {"a/0001.png": "truncated"})
    assert rest.paths == ["a/0002.png", "b/0001.png", "b/0002.png"]
    assert rest.labels.tolist() == [0, 1, 1]
    assert "undecodable: 1 (a/0001.png)" in describe(rest)
    with pytest.raises(LabError, match="no image of class a can be decoded"):
        drop_images(result, ["a/0001.png", "a/0002.png"])
