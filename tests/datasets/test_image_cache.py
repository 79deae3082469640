"""Images are checked and decoded once for all workers of a machine; the cache is never wrong."""

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
import pytest
from PIL import Image

from labs.datasets import decode, image_cache, splits, verify
from labs.datasets.arrays import is_aligned
from labs.datasets.image_cache import ImageCache
from labs.datasets.index import index_folder
from labs.run import paths
from labs.run.errors import LabError
from tests.datasets.test_decode import write_bad_images

ALL = np.arange(40)


@pytest.fixture
def index(tree):
    return index_folder(tree({"a": 20, "b": 20}, size=(32, 24)))


def open_cache(index, size=64, **options):
    return ImageCache(index.root, index.paths, size, **options)


def decode_all(index, size=64):
    return np.stack([decode.read_image(index.root / path, size) for path in index.paths])


def count_cached(cache):
    return sum(cache.memory_of(np.array([row])) is not None for row in ALL)


def test_each_image_is_decoded_once_for_all_and_for_the_next_run(index, monkeypatch):
    expected, rows = decode_all(index), np.array([39, 3, 3, 17, 0])
    one, other = open_cache(index), open_cache(index)
    for _ in range(2):  # Decoded, then remembered.
        assert np.array_equal(one[rows], expected[rows])
    assert one.memory_of(ALL) is None
    other[ALL]
    monkeypatch.delattr(decode, "decode_file")
    for cache in (one, other, open_cache(index)):
        assert np.array_equal(cache[ALL], expected)
        assert is_aligned(memory := cache.memory_of(ALL))
        assert np.array_equal(memory, expected)
    assert open_cache(index, cached=False).memory_of(rows) is None


def test_a_changed_file_a_crash_of_the_machine_and_another_decoder_empty_the_cache(index, monkeypatch, tmp_path):
    open_cache(index)[ALL]
    (tmp_path / "boot").write_text("another")
    for module, name, other in ((decode, "VERSION", "another"), (image_cache, "BOOT_ID", tmp_path / "boot")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, other)
            assert count_cached(open_cache(index)) == 0
    assert count_cached(open_cache(index)) == 40
    os.utime(index.root / index.paths[3])
    assert count_cached(open_cache(index)) == 0


def test_a_full_disk_makes_it_slower_not_wrong(index):
    cache, limits = open_cache(index), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096 + 3 * 64 * 64 * 3 + 100, limits[1]))
    try:
        assert np.array_equal(cache[ALL], decode_all(index))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert count_cached(cache) <= 3
    assert np.array_equal(cache[ALL], decode_all(index))


def test_caches_of_other_trees_make_room(index, monkeypatch):
    old, new = open_cache(index, 8), open_cache(index, 12)
    old[ALL], new[ALL]
    first, second = sorted(paths.own_temporary_dir().iterdir(), key=lambda file: file.stat().st_mtime_ns)
    room = second.stat().st_blocks * 512
    monkeypatch.setattr(image_cache.shutil, "disk_usage", lambda _: type("Usage", (), {"free": room}))
    open_cache(index, 16)
    assert (first.exists(), second.exists()) == (False, True)
    assert np.array_equal(old[ALL], decode_all(index, 8)), "a process that has it open keeps it"


READ_ALL = """
import sys, tempfile, numpy as np
from labs.datasets import image_cache
from labs.datasets.index import index_folder
index = index_folder(sys.argv[1])
tempfile.tempdir = sys.argv[2]
read = image_cache.ImageCache(index.root, index.paths, 64)
for row in range(40):
    read[np.array([row])]
"""


def test_a_killed_worker_leaves_nothing_wrong(tree):
    index = index_folder(tree({"a": 20, "b": 20}, size=(400, 300)))
    worker = subprocess.Popen([sys.executable, "-c", READ_ALL, index.root, tempfile.gettempdir()], cwd=paths.ROOT)
    cache = open_cache(index)
    while not count_cached(cache) and worker.poll() is None:
        time.sleep(0.001)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    assert np.array_equal(cache[ALL], decode_all(index))


def test_bad_images_are_left_out_and_named(index):
    bad = write_bad_images(index.root / "b")
    with pytest.raises(LabError, match=r"5 of 45 images in .* cannot be decoded, such as b/bomb"):
        verify.check_images(index_folder(index.root))
    (index.root / "b/text.jpg").unlink()
    read = splits.from_folder(index.root, 16, 0, 0, seed=1)
    assert "left out, undecodable: 4 (b/bomb.png, b/cut.jpg, b/deep.png, ...)" in read.description
    assert len(read.train) == 40
    assert verify.check_images(index_folder(index.root)).bad.keys() == {f"b/{name}" for name in bad} - {"b/text.jpg"}


def test_only_new_and_changed_files_are_checked_again(index, monkeypatch):
    checked = []
    monkeypatch.setattr(verify, "decode_file", lambda file, size: checked.append(file.removeprefix(f"{index.root}/")))
    verify.check_images(index)
    assert sorted(checked) == index.paths
    os.utime(index.root / "a/0001.png")
    verify.check_images(index)
    assert checked[40:] == ["a/0001.png"]


def test_swapped_folders_of_equal_sizes_and_times_are_read_again(tmp_path):
    for name, colour in (("a", "red"), ("b", "blue")):
        (tmp_path / "bmp" / name).mkdir(parents=True)
        Image.new("RGB", (16, 16), colour).save(tmp_path / "bmp" / name / "1.bmp")
        os.utime(tmp_path / "bmp" / name / "1.bmp", (1e9, 1e9))
    index = index_folder(tmp_path / "bmp")
    digest, pixels = verify.check_images(index).digest, open_cache(index)[np.arange(2)]
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        (index.root / old).rename(index.root / new)
    assert verify.check_images(index).digest != digest
    assert np.array_equal(open_cache(index)[np.arange(2)], pixels[::-1])


@pytest.mark.parametrize("taken", ["link to a folder of mine", "open to all", "file"])
def test_a_folder_that_others_may_have_made_is_not_used(index, tmp_path, taken):
    """In /tmp anyone may take the folder's name; the files in it could be read, replaced, or deleted to make space."""
    folder = paths.own_temporary_dir()
    folder.rmdir()
    if taken.startswith("link"):
        folder.symlink_to(tmp_path)
    elif taken == "file":
        folder.touch()
    else:
        folder.mkdir()
        folder.chmod(0o777)
    with pytest.raises(LabError, match="set TMPDIR to a folder on a disk of this machine"):
        open_cache(index)
