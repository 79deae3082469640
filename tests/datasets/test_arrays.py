"""Arrays are read whole and checked; a bad file is refused by its name."""

from __future__ import annotations

import io

import numpy as np
import pytest
from scipy.io import savemat

from labs.datasets import arrays
from labs.run.errors import LabError


def mnist(path, **changes):
    rng = np.random.default_rng(0)
    parts = {
        "x_train": rng.integers(0, 256, (20, 28, 28), np.uint8),
        "y_train": np.arange(20, dtype=np.uint8) % 10,
        "x_test": rng.integers(0, 256, (10, 28, 28), np.uint8),
        "y_test": np.arange(10, dtype=np.uint8),
    } | changes
    np.savez(path, **{key: value for key, value in parts.items() if value is not None})
    return parts


def test_mnist_from_its_file_or_its_folder(tmp_path):
    parts = mnist(tmp_path / "mnist.npz")
    for path in (tmp_path, tmp_path / "mnist.npz"):
        read = arrays.read_mnist(path)
        assert read.test_labels.dtype == read.train_labels.dtype == np.int64
        np.testing.assert_array_equal(read.train_images, parts["x_train"][..., None])
        np.testing.assert_array_equal(read.test_images, parts["x_test"][..., None])
        np.testing.assert_array_equal(read.test_labels, parts["y_test"])


@pytest.mark.parametrize(("changes", "says"), [
    ({"y_test": None}, "y_test"),
    ({"x_train": np.zeros((20, 28, 28), np.float32)}, "images uint8"),
    ({"x_train": np.zeros((19, 28, 28), np.uint8)}, "as many images"),
    ({"y_train": np.full(20, 10, np.uint8)}, "the label 10; there are 10 classes"),
    ({"y_train": np.zeros(20)}, "whole number"),
])
def test_a_wrong_mnist_is_refused(tmp_path, changes, says):
    mnist(tmp_path / "mnist.npz", **changes)
    with pytest.raises(LabError, match=rf"mnist\.npz.*{says}"):
        arrays.read_mnist(tmp_path)


class Trap:
    """Unpickling this leaves a file behind."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_a_pickle_in_an_npz_is_not_opened(tmp_path):
    trap = np.array([Trap(tmp_path / "sprung")], object)
    mnist(tmp_path / "mnist.npz", x_test=trap)
    with pytest.raises(LabError, match=r"mnist\.npz"):
        arrays.read_mnist(tmp_path)
    trap.dump(tmp_path / "mnist.npz")
    with pytest.raises(LabError, match=r"mnist\.npz"):
        arrays.read_mnist(tmp_path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("content", [b"", b"hello", "truncated", None])
def test_a_damaged_or_missing_npz_is_refused(tmp_path, content):
    if content == "truncated":
        mnist(tmp_path / "mnist.npz")
        content = (tmp_path / "mnist.npz").read_bytes()[:-100]
    if content is not None:
        (tmp_path / "mnist.npz").write_bytes(content)
    with pytest.raises(LabError, match=r"mnist\.npz"):
        arrays.read_mnist(tmp_path)


@pytest.fixture
def cifar10(tmp_path):
    """Two training files of 3 and 2 records, and one test record; pixel k is its number plus k."""
    records = [bytes([number]) + (np.arange(3072) + number).astype(np.uint8).tobytes() for number in range(6)]
    (tmp_path / "data_batch_1.bin").write_bytes(b"".join(records[:3]))
    (tmp_path / "data_batch_2.bin").write_bytes(b"".join(records[3:5]))
    (tmp_path / "test_batch.bin").write_bytes(records[5])
    return tmp_path


def test_cifar10_records_become_pictures(cifar10):
    (cifar10 / "batches.meta.txt").write_text("\n".join("abcdefghij") + "\n\n")
    read = arrays.read_cifar10(cifar10)
    assert read.train_images.shape == (5, 32, 32, 3)
    assert (read.train_labels.tolist(), read.test_labels.tolist()) == ([0, 1, 2, 3, 4], [5])
    assert read.class_names == tuple("abcdefghij")
    row, column, green = 3, 7, 1
    assert read.train_images[4, row, column, green] == (green * 1024 + row * 32 + column + 4) % 256


def test_a_wrong_cifar10_is_refused(cifar10):
    batch, whole = cifar10 / "data_batch_2.bin", (cifar10 / "data_batch_2.bin").read_bytes()
    for wrong, says in ((whole[:-1], "are not a multiple of 3073"), (b"\x0a" + whole[1:], "holds the label 10")):
        batch.write_bytes(wrong)
        with pytest.raises(LabError, match=rf"data_batch_2\.bin.*{says}"):
            arrays.read_cifar10(cifar10)
    batch.write_bytes(whole)
    (cifar10 / "test_batch.bin").unlink()
    with pytest.raises(LabError, match=r"cannot read .*test_batch\.bin"):
        arrays.read_cifar10(cifar10)


def wiki(path, **changes):
    # Born on 1 July 1980, on 30 June 1980 and on 1 January 1970, whose number in Matlab is 719529.
    columns = {"dob": [723363, 723362, 719529], "photo_taken": [2000, 2000, 2000], "face_score": [2.0, 2.0, 2.0],
               "second_face_score": [np.nan] * 3, "full_path": ["00/a.jpg", "01/b.jpg", "02/c.jpg"]} | changes
    struct = {name: np.array([column], object if name == "full_path" else float) for name, column in columns.items()}
    savemat(path / "wiki.mat", {"wiki": struct})


def test_the_age_is_that_of_the_middle_of_the_year(tmp_path):
    wiki(tmp_path)
    faces = arrays.read_wiki(tmp_path)
    assert faces.paths == ["00/a.jpg", "01/b.jpg", "02/c.jpg"]
    assert faces.ages.tolist() == [19, 20, 30]


@pytest.mark.parametrize("name", ["../evil.jpg", "/etc/passwd"])
def test_a_path_out_of_the_folder_is_refused(tmp_path, name):
    wiki(tmp_path, full_path=["00/a.jpg", name, "02/c.jpg"])
    with pytest.raises(LabError, match=r"wiki\.mat names '[^']+', outside its folder: refused"):
        arrays.read_wiki(tmp_path)


def test_a_wrong_wiki_mat_is_refused(tmp_path):
    other = io.BytesIO()
    savemat(other, {"imdb": {"dob": [1.0]}})
    wiki(tmp_path)
    truncated = (tmp_path / "wiki.mat").read_bytes()[:-200]
    for wrong in (truncated, b"hello", other.getvalue()):
        (tmp_path / "wiki.mat").write_bytes(wrong)
        with pytest.raises(LabError, match=r"wiki\.mat is not IMDB-WIKI's wiki\.mat"):
            arrays.read_wiki(tmp_path)


def test_real_samples(samples):
    digits = arrays.read_mnist(samples / "mnist.npz")
    assert digits.train_images.shape == (60_000, 28, 28, 1)
    assert digits.train_labels[:6].tolist() == [5, 0, 4, 1, 9, 2]
    photos = arrays.read_cifar10(samples / "cifar-10-batches-bin")
    assert photos.class_names[:3] == ("airplane", "automobile", "bird")
    assert set(photos.train_labels) == set(photos.test_labels) == set(range(10))
