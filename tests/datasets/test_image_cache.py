"""Decoded pictures are shared by the workers of a machine, bounded, and never wrong."""

import mmap
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from labs.datasets import decode, image_cache, verify
from labs.datasets.arrays import is_aligned
from labs.datasets.image_cache import ImageCache
from labs.datasets.index import index_folder
from labs.datasets.pipeline import eval_batches, train_batches
from labs.datasets.sharding import shard
from labs.run import paths
from labs.run.errors import LabError


@pytest.fixture
def index(tree):
    return index_folder(tree({"a": 20, "b": 20}, size=(32, 24)))


def make(index, size=16, **options):
    return ImageCache(index.root, index.paths, size, **options)


def reference(index, size=16):
    return np.stack([decode.read_image(index.root / path, size) for path in index.paths])


def spoil(index, monkeypatch):
    """Make the files unreadable without a trace: who still gets the pictures has not decoded them."""
    before = verify.stamps(index.root, index.paths)
    monkeypatch.setattr(verify, "stamps", lambda root, paths: before)
    for path in index.paths:
        (index.root / path).write_bytes(bytes((index.root / path).stat().st_size))


def test_pictures_by_position(index):
    rows = np.array([39, 3, 3, 17, 0])
    read = make(index)
    assert (len(read), read.shape, read.dtype) == (40, (40, 16, 16, 3), np.uint8)
    for _ in range(2):  # Decoded, then remembered.
        assert np.array_equal(read[rows], reference(index)[rows])
    assert read.decoded == 4
    assert read[np.array([], int)].shape == (0, 16, 16, 3)


def test_each_is_decoded_once_for_all_and_for_the_next_run(index, monkeypatch):
    expected, all_ = reference(index), np.arange(40)
    one, other = make(index), make(index)
    one[all_[:20]]
    other[all_[20:]]
    spoil(index, monkeypatch)
    for read in (one, other, make(index)):
        assert read.decoded == 40
        assert np.array_equal(read[all_], expected)


def test_decoded_pictures_are_read_where_they_lie(index, monkeypatch):
    read, rows = make(index), np.arange(20)
    assert read.memory_of(rows) is None
    read[rows]
    kept = read.memory_of(rows)
    assert np.array_equal(kept[rows], reference(index)[rows])
    assert is_aligned(kept)
    assert read.memory_of(np.arange(21)) is None
    assert make(index, memory=0).memory_of(rows) is None
    mine = shard(20, 4, 0, 1, 0, 1)
    monkeypatch.delattr(ImageCache, "__getitem__")
    for step, (x, _, _) in enumerate(train_batches(read, index.labels, mine, epoch=0, seed=1).as_numpy_iterator()):
        assert np.array_equal(x, kept[mine.rows[step]])
    (x, _), = eval_batches(read, index.labels, rows, 20).as_numpy_iterator()
    assert np.array_equal(x, kept[rows])


def test_a_changed_picture_is_decoded_again(index):
    make(index)[np.arange(40)]
    os.utime(index.root / index.paths[3])
    assert make(index).decoded == 0
    assert make(index, size=8).decoded == 0


def test_after_a_crash_of_the_machine_or_with_another_decoder_nothing_is_believed(index, monkeypatch, tmp_path):
    make(index)[np.arange(40)]
    (tmp_path / "boot").write_text("another")
    for module, name, other in ((decode, "VERSION", "another"), (image_cache, "BOOT_ID", tmp_path / "boot")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, other)
            assert make(index).decoded == 0
    assert make(index).decoded == 40


def test_memory_is_bounded(index):
    read = make(index, memory=5 * 16 * 16 * 3)
    for _ in range(2):
        assert np.array_equal(read[np.arange(40)], reference(index))
    assert read.decoded == 5


def test_a_full_disk_makes_it_slower_not_wrong(index):
    read = make(index)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (mmap.PAGESIZE + 3 * 768 + 100, limits[1]))
    try:
        assert np.array_equal(read[np.arange(40)], reference(index))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert read.decoded <= 3
    assert np.array_equal(read[np.arange(40)], reference(index))


def test_files_of_other_trees_make_room(index, monkeypatch):
    old, new = make(index, size=8), make(index, size=12)
    old[np.arange(40)], new[np.arange(40)]
    folder = Path(tempfile.gettempdir()) / f"labs-{os.getuid()}"
    first, second = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime_ns)
    room = second.stat().st_blocks * 512
    monkeypatch.setattr(image_cache.shutil, "disk_usage", lambda _: type("Usage", (), {"free": room}))
    make(index, size=16)
    assert not first.exists()
    assert second.exists()
    assert np.array_equal(old[np.arange(40)], reference(index, 8))  # Who has it open keeps it.


READ_ALL = """
import sys, tempfile, numpy as np
from labs.datasets import image_cache
from labs.datasets.index import index_folder
index = index_folder(sys.argv[1])
tempfile.tempdir = sys.argv[2]
read = image_cache.ImageCache(index.root, index.paths, 64)
print("begun", flush=True)
for seed in range(int(sys.argv[3])):
    for rows in np.random.default_rng(seed).permutation(40).reshape(8, 5):
        pixels = read[rows]
np.save(sys.argv[4], read[np.arange(40)])
"""


def start(index, rounds, result):
    command = [sys.executable, "-c", READ_ALL, index.root, tempfile.gettempdir(), str(rounds), result]
    return subprocess.Popen(command, cwd=paths.ROOT, stdout=subprocess.PIPE)


def test_a_killed_worker_leaves_nothing_wrong(tree, tmp_path):
    index = index_folder(tree({"a": 20, "b": 20}, size=(400, 300)))
    worker = start(index, 1, tmp_path / "never.npy")
    worker.stdout.readline()
    read = make(index, size=64)
    while not read.decoded and worker.poll() is None:
        time.sleep(0.001)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    assert np.array_equal(read[np.arange(40)], reference(index, 64))


def test_digest_tells_sets_apart_but_not_machines(index, tree, tmp_path):
    for path in index.paths:
        os.utime(index.root / path)
    twin = index_folder(tree({"a": 20, "b": 20}, size=(32, 24), root=tmp_path / "twin"))
    assert make(index).digest == make(twin).digest
    assert make(index).digest != make(index, size=8).digest
    (twin.root / twin.paths[0]).write_bytes(b"other")
    assert make(index).digest != make(twin).digest


def test_nowhere_to_keep_them(index, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    with pytest.raises(LabError, match="set TMPDIR to a folder on a disk of this machine"):
        make(index)


@pytest.mark.parametrize("taken", ["link to a folder of mine", "open to all", "someone else's", "file"])
def test_a_folder_that_others_may_have_made_is_not_used(index, tmp_path, taken, monkeypatch):
    """In /tmp anyone may take the folder's name; the files in it could be read, replaced, or deleted to make space."""
    if taken.startswith("someone") and os.geteuid() != 0:  # Only root can give a folder away; so another user runs.
        other = os.getuid() + 1
        monkeypatch.setattr(os, "getuid", lambda: other)
    folder, mine = Path(tempfile.gettempdir()) / f"labs-{os.getuid()}", tmp_path / "mine"
    mine.mkdir(mode=0o700)
    (mine / "thesis").write_bytes(bytes(10_000))
    if taken.startswith("link"):
        folder.symlink_to(mine)
    elif taken == "file":
        folder.touch()
    else:
        folder.mkdir()
        folder.chmod(0o777 if taken == "open to all" else 0o700)
    if taken.startswith("someone") and os.geteuid() == 0:
        os.chown(folder, 65534, 65534)
    monkeypatch.setattr(image_cache.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 0}))  # Makes space.
    with pytest.raises(LabError, match="set TMPDIR to a folder on a disk of this machine"):
        make(index)
    assert os.listdir(mine) == ["thesis"]
