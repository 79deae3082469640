"""Image files that cannot be decoded are found before training, and sound files are checked once."""

import json
import os

import numpy as np
import pytest
from PIL import Image

from labs.datasets import splits, verify
from labs.datasets.image_cache import ImageCache
from labs.datasets.index import drop_images, index_folder
from labs.run.errors import LabError
from tests.datasets.test_decode import gradient


@pytest.fixture
def spoilt(tree):
    """60 good pictures and four bad ones."""
    root = tree({"a": 30, "b": 30})
    photo = root / "a" / "whole.jpg"
    gradient(400, 300).save(photo)
    content = photo.read_bytes()
    photo.unlink()
    (root / "a" / "cut.jpg").write_bytes(content[: len(content) // 2])
    (root / "a" / "empty.jpg").touch()
    (root / "b" / "text.jpg").write_text("<html>404 Not Found</html>")
    (root / "b" / "program.jpg").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    return index_folder(root)


def test_undecodable_pictures_are_named(spoilt, capfd):
    bad = verify.check_images(spoilt).bad
    assert bad.keys() == {"a/cut.jpg", "a/empty.jpg", "b/program.jpg", "b/text.jpg"}
    assert "truncated" in bad["a/cut.jpg"]
    assert bad["b/text.jpg"] == bad["b/program.jpg"] == "not an image"
    assert capfd.readouterr().err == ""  # Not a terminal: no progress bar.
    assert len(drop_images(spoilt, bad)) == 60


def test_a_picture_in_two_classes_is_named(tree):
    root = tree({"a": 20, "b": 20})
    (root / "b/copy.png").write_bytes((root / "a/0001.png").read_bytes())
    (root / "a/again.png").write_bytes((root / "a/0002.png").read_bytes())  # Twice in one class: no contradiction.
    description = splits.from_folder(root, 32, 0.2, 0.2, seed=1).description
    assert "the same picture in two classes: 2 (a/0001.png, b/copy.png)" in description


def test_a_huge_picture_is_refused(tree):
    root = tree({"a": 20, "b": 20})
    Image.new("1", (20000, 10000)).save(root / "a" / "bomb.png")
    assert "decompression bomb" in verify.check_images(index_folder(root)).bad["a/bomb.png"]


@pytest.fixture
def by_mtime():
    """A file is known by its size and modification time only, which a test can set."""
    def stamp(file):
        return (os.stat(file).st_size, str(os.stat(file).st_mtime_ns)) if os.path.exists(file) else (-1, "")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verify, "_stamp", stamp)
        yield


def replace(path, content):
    """Other content of the same size and time."""
    status = path.stat()
    path.write_bytes(content[: status.st_size].ljust(status.st_size))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.usefixtures("by_mtime")
def test_what_was_checked_is_not_checked_again(spoilt):
    first = verify.check_images(spoilt).bad
    replace(spoilt.root / "a/0001.png", b"spoilt")
    assert verify.check_images(spoilt).bad == first
    os.utime(spoilt.root / "a/0001.png")
    assert verify.check_images(spoilt).bad.keys() == first.keys() | {"a/0001.png"}
    (spoilt.root / "a/0002.png").unlink()
    assert verify.check_images(spoilt).bad["a/0002.png"] == "No such file or directory"


@pytest.mark.usefixtures("by_mtime")
def test_another_reader_checks_anew(spoilt, monkeypatch):
    first = verify.check_images(spoilt).bad
    replace(spoilt.root / "a/0001.png", b"spoilt")
    monkeypatch.setattr(verify, "VERSION", "another")
    assert verify.check_images(spoilt).bad.keys() == first.keys() | {"a/0001.png"}


def test_memory_is_dropped_with_the_files_and_bounded(spoilt, tree, tmp_path, monkeypatch):
    verify.check_images(spoilt)
    memory = next((tmp_path / "cache").rglob("*.json"))
    assert "a/0001.png" in memory.read_text()
    (spoilt.root / "a/0001.png").unlink()
    verify.check_images(index_folder(spoilt.root))
    assert "a/0001.png" not in memory.read_text()
    monkeypatch.setattr(verify, "MAX_REMEMBERED", 1)
    verify.check_images(index_folder(tree({"a": 1, "b": 1}, root=tmp_path / "other")))
    assert not memory.exists()


def test_a_broken_memory_is_made_anew(spoilt, tmp_path):
    first = verify.check_images(spoilt).bad
    next((tmp_path / "cache").rglob("*.json")).write_text('{"reader": "')
    assert verify.check_images(spoilt).bad == first


@pytest.mark.usefixtures("by_mtime")
def test_an_interrupted_check_goes_on_where_it_was(spoilt, tmp_path, monkeypatch):
    class Stop(BaseException):
        pass

    def stop(*_):
        yield spoilt.paths.index("a/0002.png"), ("seen", None, "")
        raise Stop

    verify.check_images(spoilt)
    os.utime(spoilt.root / "a/0002.png")
    replace(spoilt.root / "a/0001.png", b"spoilt")
    monkeypatch.setattr(verify, "_checked", stop)
    with pytest.raises(Stop):
        verify.check_images(spoilt)
    monkeypatch.undo()
    monkeypatch.setenv("LABS_CACHE", str(tmp_path / "cache"))
    kept = json.loads(next((tmp_path / "cache").rglob("*.json")).read_text())["files"]
    assert kept["a/0002.png"][2] == "seen"
    assert "a/0001.png" not in verify.check_images(spoilt).bad


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


def test_too_many_are_an_error(spoilt):
    with pytest.raises(LabError, match=r"4 of 64 images in .* cannot be decoded, such as a/cut"):
        verify.check_images(spoilt, threshold=0.05)


def test_real_photos_can_all_be_decoded(caltech):
    assert verify.check_images(index_folder(caltech)).bad == {}
