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
    for path in (tmp_path, tmp_path / "mnist.npz", str(tmp_path)):
        read = arrays.read_mnist(path)
        assert read.train_images.shape == (20, 28, 28, 1)
        assert read.test_labels.dtype == read.train_labels.dtype == np.int64
        np.testing.assert_array_equal(read.train_images[..., 0], parts["x_train"])
        np.testing.assert_array_equal(read.test_images[..., 0], parts["x_test"])
        np.testing.assert_array_equal(read.test_labels, parts["y_test"])
        assert arrays.is_aligned(read.train_images)
        assert arrays.is_aligned(read.test_images)


class Trap:
    """Unpickling this leaves a file behind."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"y_test": None}, "y_test"),
        ({"x_train": np.zeros((20, 28, 28), np.float32)}, "images uint8"),
        ({"x_train": np.zeros((20, 784), np.uint8)}, "images uint8"),
        ({"x_train": np.zeros((19, 28, 28), np.uint8)}, "as many images"),
        ({"x_test": np.zeros((0, 28, 28), np.uint8), "y_test": np.zeros(0, np.uint8)}, "as many images"),
        ({"y_train": np.full(20, 10, np.uint8)}, "the label 10; there are 10 classes"),
        ({"y_train": np.full(20, -1)}, "holds the label -1"),
        ({"y_train": np.zeros(20)}, "whole number"),
    ],
)
def test_a_wrong_mnist_is_refused(tmp_path, changes, says):
    mnist(tmp_path / "mnist.npz", **changes)
    with pytest.raises(LabError, match=rf"mnist\.npz.*{says}"):
        arrays.read_mnist(tmp_path)


def test_a_pickle_in_an_npz_is_not_opened(tmp_path):
    trap = np.array([Trap(tmp_path / "sprung")], object)
    mnist(tmp_path / "mnist.npz", x_test=trap)
    with pytest.raises(LabError, match=r"mnist\.npz"):
        arrays.read_mnist(tmp_path)
    trap.dump(tmp_path / "mnist.npz")
    with pytest.raises(LabError, match=r"mnist\.npz"):
        arrays.read_mnist(tmp_path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\3\4broken", None])
def test_what_is_no_npz_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "mnist.npz").write_bytes(content)
    with pytest.raises(LabError, match=r"mnist\.npz"):
        arrays.read_mnist(tmp_path)


def test_a_torn_npz_is_refused(tmp_path):
    mnist(tmp_path / "mnist.npz")
    whole = (tmp_path / "mnist.npz").read_bytes()
    (tmp_path / "mnist.npz").write_bytes(whole[:-100])
    with pytest.raises(LabError, match=r"mnist\.npz"):
        arrays.read_mnist(tmp_path)


@pytest.fixture
def cifar10(tmp_path):
    """Two training files of 3 and 2 records, and one test record; pixel k is its number plus k."""
    records = []
    for number in range(6):
        planes = (np.arange(3072) + number).astype(np.uint8)
        records.append(bytes([number]) + planes.tobytes())
    (tmp_path / "data_batch_1.bin").write_bytes(b"".join(records[:3]))
    (tmp_path / "data_batch_2.bin").write_bytes(b"".join(records[3:5]))
    (tmp_path / "test_batch.bin").write_bytes(records[5])
    return tmp_path


def test_cifar10_records_become_pictures(cifar10):
    read = arrays.read_cifar10(cifar10)
    assert read.train_images.shape == (5, 32, 32, 3)
    assert read.train_labels.tolist() == [0, 1, 2, 3, 4]
    assert read.test_labels.tolist() == [5]
    assert read.class_names == tuple("0123456789"), "no batches.meta.txt"
    row, column, green = 3, 7, 1
    assert read.train_images[4, row, column, green] == (green * 1024 + row * 32 + column + 4) % 256
    assert arrays.is_aligned(read.train_images)
    assert arrays.is_aligned(read.test_images)
    (cifar10 / "batches.meta.txt").write_text("\n".join("abcdefghij") + "\n\n")
    assert arrays.read_cifar10(cifar10).class_names == tuple("abcdefghij")


def test_a_wrong_cifar10_is_refused(cifar10):
    batch, whole = cifar10 / "data_batch_2.bin", (cifar10 / "data_batch_2.bin").read_bytes()
    for wrong in (whole[:-1], whole + b"x", b""):
        batch.write_bytes(wrong)
        with pytest.raises(LabError, match=r"data_batch_2\.bin.* are not a multiple of 3073"):
            arrays.read_cifar10(cifar10)
    batch.write_bytes(b"\x0a" + whole[1:])
    with pytest.raises(LabError, match=r"data_batch_2\.bin holds the label 10"):
        arrays.read_cifar10(cifar10)
    batch.write_bytes(whole)
    (cifar10 / "test_batch.bin").unlink()
    with pytest.raises(LabError, match=r"cannot read .*test_batch\.bin"):
        arrays.read_cifar10(cifar10)
    with pytest.raises(LabError, match="not the binary version"):
        arrays.read_cifar10(cifar10 / "nowhere")


def wiki(path, **changes):
    # Born on 1 July 1980, on 30 June 1980 and on 1 January 1970, whose number in Matlab is 719529.
    cells = {"full_path": ["00/a.jpg", "01/b.jpg", "02/c.jpg"]}
    columns = {"dob": [723363, 723362, 719529], "photo_taken": [2000, 2000, 2000]}
    columns |= {"face_score": [2.0, 2.0, 2.0], "second_face_score": [np.nan] * 3} | changes
    cells["full_path"] = columns.pop("full_path", cells["full_path"])
    struct = {name: np.array([column], float) for name, column in columns.items()}
    struct["full_path"] = np.array([cells["full_path"]], object)
    savemat(path / "wiki.mat", {"wiki": struct})


def test_the_age_is_that_of_the_middle_of_the_year(tmp_path):
    wiki(tmp_path)
    faces = arrays.read_wiki(tmp_path)
    assert faces.paths == ["00/a.jpg", "01/b.jpg", "02/c.jpg"]
    assert faces.ages.tolist() == [19, 20, 30]
    assert faces.ages.dtype == np.int64


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"face_score": [2, -np.inf, 2]}, "no face"),
        ({"second_face_score": [np.nan, 1.5, np.nan]}, "two faces"),
        ({"dob": [723363, 730000 + 3660, 719529]}, "absurd age"),
        ({"dob": [723363, 47, 719529]}, "absurd age"),
        ({"dob": [723363, np.nan, 719529]}, "absurd age"),
    ],
)
def test_unusable_rows_are_left_out_and_counted(tmp_path, changes, reason):
    wiki(tmp_path, **changes)
    faces = arrays.read_wiki(tmp_path)
    assert faces.paths == ["00/a.jpg", "02/c.jpg"]
    assert faces.ages.tolist() == [19, 30]
    assert {fault: rows for fault, rows in faces.left_out.items() if rows} == {reason: 1}


@pytest.mark.parametrize("name", ["../evil.jpg", "/etc/passwd", "00/../../evil.jpg"])
def test_a_path_out_of_the_folder_is_refused(tmp_path, name):
    wiki(tmp_path, full_path=["00/a.jpg", name, "02/c.jpg"])
    with pytest.raises(LabError, match=r"wiki\.mat names '[^']+', outside its folder: refused"):
        arrays.read_wiki(tmp_path)


def test_a_wrong_wiki_mat_is_refused(tmp_path):
    with pytest.raises(LabError, match=r"wiki\.mat"):
        arrays.read_wiki(tmp_path)
    wiki(tmp_path, photo_taken=[2000, 2000])
    with pytest.raises(LabError, match="columns of different lengths"):
        arrays.read_wiki(tmp_path)
    wiki(tmp_path)
    whole = (tmp_path / "wiki.mat").read_bytes()
    other = io.BytesIO()
    savemat(other, {"imdb": {"dob": [1.0]}})
    for wrong in (whole[:-200], whole[:60], b"hello", other.getvalue()):
        (tmp_path / "wiki.mat").write_bytes(wrong)
        with pytest.raises(LabError, match=r"wiki\.mat is not IMDB-WIKI's wiki\.mat"):
            arrays.read_wiki(tmp_path)


def test_the_real_mnist(samples):
    read = arrays.read_mnist(samples / "mnist.npz")
    assert read.train_images.shape == (60_000, 28, 28, 1)
    assert read.train_labels[:6].tolist() == [5, 0, 4, 1, 9, 2]
    assert len(read.test_images) == len(read.test_labels) == 10_000


def test_the_real_cifar10(samples):
    read = arrays.read_cifar10(samples / "cifar-10-batches-bin")
    assert read.train_images.shape[1:] == (32, 32, 3)
    assert len(read.train_images) == len(read.train_labels)
    assert read.class_names[:3] == ("airplane", "automobile", "bird")
    assert set(read.train_labels) == set(read.test_labels) == set(range(10))
