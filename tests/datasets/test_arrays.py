"""Arrays are read whole and checked; a bad file is refused by its name."""

import numpy as np
import pytest
from scipy.io import savemat

from labs.datasets import arrays, locate, splits
from labs.run.errors import LabError


class Trap:
    """Unpickling this leaves a file behind."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_mnist_is_read_from_its_file_or_folder_and_refused_if_it_is_wrong(tmp_path):
    file, rng = tmp_path / "mnist.npz", np.random.default_rng(0)
    columns = {"x_train": rng.integers(0, 256, (20, 28, 28), np.uint8), "y_train": np.arange(20, dtype=np.uint8) % 10,
               "x_test": rng.integers(0, 256, (10, 28, 28), np.uint8), "y_test": np.arange(10, dtype=np.uint8)}
    np.savez(file, **columns)
    for path in (tmp_path, file):
        read = arrays.read_mnist(path)
        np.testing.assert_array_equal(read.train_images, columns["x_train"][..., None])
        np.testing.assert_array_equal(read.test_labels, columns["y_test"])
    for changes, says in (({"x_train": np.zeros((19, 28, 28), np.uint8)}, "as many"),
                          ({"y_train": np.full(20, 10, np.uint8)}, "from 0 to 9"),
                          ({"y_train": np.zeros(20)}, "whole number"),
                          ({"x_test": np.array([Trap(tmp_path / "sprung")], object)}, "allow_pickle")):
        np.savez(file, **columns | changes)
        with pytest.raises(LabError, match=rf"mnist\.npz.*{says}"):
            arrays.read_mnist(tmp_path)
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(LabError, match=r"mnist\.npz"):
        arrays.read_mnist(tmp_path)
    assert not (tmp_path / "sprung").exists()


def test_cifar10_records_become_images(tmp_path):
    """Two training files of 3 and 2 records, and one test record; pixel k is its number plus k."""
    records = [bytes([number]) + (np.arange(3072) + number).astype(np.uint8).tobytes() for number in range(6)]
    (tmp_path / "data_batch_1.bin").write_bytes(b"".join(records[:3]))
    (tmp_path / "data_batch_2.bin").write_bytes(b"".join(records[3:5]))
    (tmp_path / "test_batch.bin").write_bytes(records[5])
    (tmp_path / "batches.meta.txt").write_text("\n".join("abcdefghij") + "\n\n")
    read = arrays.read_cifar10(tmp_path)
    assert read.train_images.shape == (5, 32, 32, 3)
    assert (read.train_labels.tolist(), read.test_labels.tolist()) == ([0, 1, 2, 3, 4], [5])
    assert read.class_names == tuple("abcdefghij")
    row, column, green = 3, 7, 1
    assert read.train_images[4, row, column, green] == (green * 1024 + row * 32 + column + 4) % 256
    for wrong, says in ((records[0][:-1], "are not a multiple of 3073"), (b"\x0a" + records[0][1:], "from 0 to 9")):
        (tmp_path / "data_batch_2.bin").write_bytes(wrong)
        with pytest.raises(LabError, match=rf"data_batch_2\.bin.*{says}"):
            arrays.read_cifar10(tmp_path)


def test_the_age_is_that_of_the_middle_of_the_year_and_a_damaged_table_is_refused(tmp_path):
    # Born on 1 July 1980, on 30 June 1980 and on 1 January 1970, whose number in Matlab is 719529.
    columns = {"dob": [723363, 723362, 719529], "photo_taken": [2000, 2000, 2000], "face_score": [2.0, 2.0, 2.0],
               "second_face_score": [np.nan] * 3, "full_path": ["00/a.jpg", "01/b.jpg", "02/c.jpg"]}
    struct = {name: np.array([column], object if name == "full_path" else float) for name, column in columns.items()}
    savemat(tmp_path / "wiki.mat", {"wiki": struct})
    assert arrays.read_wiki(tmp_path)[1].tolist() == [19, 20, 30]
    (tmp_path / "wiki.mat").write_bytes((tmp_path / "wiki.mat").read_bytes()[:-200])
    with pytest.raises(LabError, match=r"wiki\.mat is not IMDB-WIKI's wiki\.mat"):
        arrays.read_wiki(tmp_path)


def test_a_face_keeps_its_age_and_what_cannot_be_used_is_counted(tmp_path, monkeypatch):
    monkeypatch.setenv("LABS_DATA", str(tmp_path))
    faces = splits.from_faces(locate("imdb_wiki", "embedded"), 16, 0.2, 0.2, seed=1)
    assert faces.description == ("465 faces of 500, aged 15 to 85; left out: 10 no face, 5 two faces, 10 absurd age, "
                                 "10 undecodable")
    rows = np.concatenate([subset.positions for subset in (faces.train, faces.validation, faces.test)])
    assert len(np.unique(rows)) == len(rows) == 465, "every face is in one subset"
    for row in rows:
        born, taken = faces.train.images.paths[row].rpartition("/")[2].split("_")[1:]
        assert faces.train.labels[row] == int(taken[:4]) - int(born[:4])
