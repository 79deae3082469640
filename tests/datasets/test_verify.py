"""Image files that cannot be decoded are found before training, and sound files are checked once."""

import itertools
import os

import numpy as np
import pytest
from PIL import Image

from labs.datasets import splits, verify
from labs.datasets.image_cache import ImageCache
from labs.datasets.index import index_folder
from labs.run.errors import LabError
from tests.datasets.test_decode import spoilt


@pytest.fixture
def index(tree):
    """60 good pictures and four bad ones."""
    root = tree({"a": 30, "b": 29})
    spoilt(root / "b")
    return index_folder(root)


def test_undecodable_pictures_are_named(index, capfd):
    bad = verify.check_images(index).bad
    assert bad.keys() == {"b/cut.jpg", "b/deep.png", "b/program.jpg", "b/text.jpg"}
    assert bad["b/text.jpg"] == "not an image"
    assert capfd.readouterr().err == ""  # Not a terminal: no progress bar.
    read = splits.from_folder(index.root, 16, 0, 0, seed=1)
    assert "left out, undecodable: 4 (b/cut.jpg, b/deep.png, b/program.jpg, ...)" in read.description
    assert len(read.train) == 60
    for path in index.paths[:4]:
        (index.root / path).write_bytes(b"")
    with pytest.raises(LabError, match=r"8 of 64 images in .* cannot be decoded, such as a/0001"):
        verify.check_images(index)


def test_a_picture_in_two_classes_is_named(tree):
    root = tree({"a": 20, "b": 20})
    (root / "b/copy.png").write_bytes((root / "a/0001.png").read_bytes())
    (root / "a/again.png").write_bytes((root / "a/0002.png").read_bytes())  # Twice in one class: no contradiction.
    description = splits.from_folder(root, 32, 0.2, 0.2, seed=1).description
    assert "identical images in two classes: 2 (a/0001.png, b/copy.png)" in description


def test_a_huge_picture_is_refused(tree):
    root = tree({"a": 20, "b": 20})
    Image.new("1", (20000, 10000)).save(root / "a" / "bomb.png")
    assert "decompression bomb" in verify.check_images(index_folder(root)).bad["a/bomb.png"]


def checked(index) -> list[str]:
    """The paths that a check decodes."""
    paths = []
    verify.check_images(index, lambda position: paths.append(index.paths[position]))
    return sorted(paths)


def test_only_new_and_changed_files_are_checked_again(index, monkeypatch, tmp_path):
    assert checked(index) == sorted(index.paths)
    assert checked(index) == []
    os.utime(index.root / "a/0001.png")
    assert checked(index) == ["a/0001.png"]
    monkeypatch.setattr(verify, "FORMAT", "another decoder")
    assert checked(index) == sorted(index.paths)
    next((tmp_path / "cache").rglob("*.json")).write_text('{"format": "')
    assert checked(index) == sorted(index.paths)


def test_an_interrupted_check_continues(index, monkeypatch):
    def stop(results, *_, **__):
        yield from itertools.islice(results, 20)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(verify, "tqdm", stop)
        with pytest.raises(KeyboardInterrupt):
            verify.check_images(index)
    assert checked(index) == sorted(index.paths[20:])


def test_swapped_folders_of_equal_sizes_and_times_are_read_again(tmp_path):
    for name, colour in (("a", "red"), ("b", "blue")):
        (tmp_path / "bmp" / name).mkdir(parents=True)
        Image.new("RGB", (16, 16), colour).save(tmp_path / "bmp" / name / "1.bmp")
        os.utime(tmp_path / "bmp" / name / "1.bmp", (1e9, 1e9))
    index = index_folder(tmp_path / "bmp")
    digest = verify.check_images(index).digest
    pixels = ImageCache(index.root, index.paths, 16)[np.arange(2)]
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        (index.root / old).rename(index.root / new)
    assert verify.check_images(index).digest != digest
    assert np.array_equal(ImageCache(index.root, index.paths, 16)[np.arange(2)], pixels[::-1])
