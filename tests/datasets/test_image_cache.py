"""Images are checked and decoded once for all workers of a machine; the cache is never wrong."""

import os
import resource

import numpy as np
import pytest
from PIL import Image

from labs.datasets import decode, image_cache, splits
from labs.datasets.arrays import align
from labs.datasets.image_cache import ImageCache
from labs.datasets.index import index_folder
from labs.run import paths
from labs.run.errors import LabError
from tests.datasets.test_decode import write_bad_images

ALL = np.arange(40)


@pytest.fixture
def index(tree):
    return index_folder(tree({"a": 20, "b": 20}, size=(32, 24)))


def decode_all(index, size=64):
    return np.stack([decode.read_image(index.root / path, size) for path in index.paths])


def test_each_image_is_decoded_once_for_all_and_for_the_next_run(index, monkeypatch):
    expected, rows = decode_all(index), np.array([39, 3, 3, 17, 0])
    assert np.array_equal(ImageCache(index, 64, cached=False)[rows], expected[rows])
    monkeypatch.delattr(decode, "decode_bytes")
    cache = ImageCache(index, 64)
    assert np.array_equal(cache[rows], expected[rows])
    assert align(cache.memory) is cache.memory, "TensorFlow reads it in place"


def test_a_changed_file_a_crash_of_the_machine_and_another_decoder_empty_the_cache(index, monkeypatch, tmp_path):
    ImageCache(index, 64)
    (tmp_path / "boot").write_text("another")
    monkeypatch.setattr(decode, "decode_bytes", lambda content, size: np.full((size, size, 3), 7, np.uint8))
    assert not np.all(ImageCache(index, 64)[ALL] == 7)
    for module, name, other in ((decode, "VERSION", "another"), (image_cache, "BOOT_ID", tmp_path / "boot")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, other)
            assert np.all(ImageCache(index, 64)[ALL] == 7)
    os.utime(index.root / index.paths[3])
    assert np.all(ImageCache(index, 64)[ALL] == 7)


def test_a_full_disk_is_named_and_leaves_nothing(index):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(LabError, match=r"File too large\); set TMPDIR to a folder of your own"):
            ImageCache(index, 64)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert np.array_equal(ImageCache(index, 64)[ALL], decode_all(index))


def test_caches_that_nobody_uses_are_deleted(index):
    old = ImageCache(index, 8)
    (folder,) = paths.own_temporary_dir().glob("*/")
    os.utime(folder, (1e9, 1e9))
    ImageCache(index, 6)
    assert not folder.exists()
    assert np.array_equal(old[ALL], decode_all(index, 8)), "a process that has it open keeps it"


def test_bad_images_are_left_out_and_named(index, tree):
    write_bad_images(index.root / "b")
    with pytest.raises(LabError, match=r"5 of 45 images in .* cannot be decoded, such as b/bomb"):
        ImageCache(index_folder(index.root), 16)
    (index.root / "b/text.jpg").unlink()
    read = splits.from_folder(index.root, 16, 0, 0, seed=1)
    assert "cannot be decoded: 4 (b/bomb.png, b/cut.jpg, b/deep.png, ...)" in read.description
    assert len(read.train) == 40
    for path in tree({"a": 20, "b": 1}, root=index.root / "more").glob("b/*"):
        path.write_text("no image")
    with pytest.raises(LabError, match="no image of class b can be decoded"):
        ImageCache(index_folder(index.root / "more"), 8)


def test_swapped_folders_of_equal_sizes_and_times_are_read_again(tmp_path):
    for name, colour in (("a", "red"), ("b", "blue")):
        (tmp_path / "bmp" / name).mkdir(parents=True)
        Image.new("RGB", (16, 16), colour).save(tmp_path / "bmp" / name / "1.bmp")
        os.utime(tmp_path / "bmp" / name / "1.bmp", (1e9, 1e9))
    index = index_folder(tmp_path / "bmp")
    before = ImageCache(index, 16)
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        (index.root / old).rename(index.root / new)
    after = ImageCache(index, 16)
    assert after.digest != before.digest
    assert np.array_equal(after[np.arange(2)], before[np.arange(2)][::-1])
