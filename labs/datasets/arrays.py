"""Read the data sets whose images or labels are arrays in a file: MNIST, CIFAR-10, IMDB-WIKI's ages."""

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from labs.run.errors import LabError

CIFAR10_RECORD = 1 + 3 * 32 * 32  # Bytes: a label, then the red, the green and the blue plane.
ALIGNMENT = 64  # Bytes; TensorFlow reads memory without copying if it begins at a multiple of this.


@dataclasses.dataclass(frozen=True)
class Arrays:
    """A data set in memory: images uint8 [n, height, width, channels], labels int64 [n]."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    class_names: tuple[str, ...]
    digest: str = ""  # Of everything above, as it was read: `dataclasses.replace` keeps it.

    def __post_init__(self):
        arrays = (self.train_images, self.train_labels, self.test_images, self.test_labels)
        object.__setattr__(self, "digest", self.digest or digest_of(*arrays, self.class_names))


def digest_of(*values: Any) -> str:
    """Return a checksum of arrays, whatever their memory layout, and of other values by their `repr`."""
    digest = hashlib.blake2b(digest_size=8)
    for value in values:
        digest.update(np.ascontiguousarray(value).data if isinstance(value, np.ndarray) else repr(value).encode())
    return digest.hexdigest()


def align(array: np.ndarray) -> np.ndarray:
    """Return the array, or an aligned copy if TensorFlow could not read it without copying."""
    if array.ctypes.data % ALIGNMENT == 0 and array.flags.c_contiguous and array.flags.writeable:
        return array
    memory = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def read_mnist(path: str | Path) -> Arrays:
    """Read mnist.npz, given by its path or its folder; raise LabError for another format."""
    path = Path(path) / "mnist.npz" if Path(path).is_dir() else Path(path)
    try:
        with np.load(path, allow_pickle=False) as file:  # It may be a stranger's.
            columns = [file[key] for key in ("x_train", "y_train", "x_test", "y_test")]
    except Exception as error:  # numpy raises many kinds of exceptions for a damaged file.
        raise LabError(f"{path} is not a valid mnist.npz ({error}); fetch it again or use --data embedded") from error
    for images, labels in (columns[:2], columns[2:]):
        if images.dtype != np.uint8 or images.shape != (*labels.shape[:1], 28, 28) or not len(images):
            raise LabError(f"{path} should hold as many images uint8 [n, 28, 28] as labels, "
                           f"not {images.dtype} {list(images.shape)} for labels {list(labels.shape)}")
        _check_labels(path, labels)
    train_images, train_labels, test_images, test_labels = columns
    return Arrays(align(train_images[..., None]), train_labels.astype(np.int64),
                  align(test_images[..., None]), test_labels.astype(np.int64), tuple("0123456789"))


def read_cifar10(path: str | Path) -> Arrays:
    """Read the folder of CIFAR-10's binary version; its files may hold fewer than 10,000 records."""
    path = Path(path)
    train = [_read_records(file) for file in sorted(path.glob("data_batch_*.bin"))]
    images, labels = (np.concatenate(arrays) for arrays in zip(*train, strict=True))
    test_images, test_labels = _read_records(path / "test_batch.bin")
    meta = path / "batches.meta.txt"
    names = tuple(meta.read_text().split()) if meta.exists() else tuple("0123456789")
    return Arrays(align(images), labels, align(test_images), test_labels, names)


def _read_records(path: Path) -> tuple[np.ndarray, np.ndarray]:
    records = np.fromfile(path, np.uint8)
    if not len(records) or len(records) % CIFAR10_RECORD:
        raise LabError(f"{path}: {len(records):,} bytes are not a multiple of {CIFAR10_RECORD}, a record; "
                       "fetch it again")
    records = records.reshape(-1, CIFAR10_RECORD)
    labels = records[:, 0].astype(np.int64)
    _check_labels(path, labels)
    return np.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), labels


def _check_labels(path: Path, labels: np.ndarray) -> None:
    if labels.dtype.kind not in "iu" or labels.ndim != 1 or labels.min() < 0 or labels.max() > 9:
        raise LabError(f"{path}: each image should have a whole number from 0 to 9 as its label")


def read_wiki(path: Path) -> tuple[list[str], np.ndarray, dict[str, int]]:
    """Read wiki.mat: the usable images, each person's age in the middle of the photograph's year, what is left out.

    Returns:
        Paths below the folder; ages in years, float32 [n]; the number of rows left out by reason, where a row with two
        faults counts under the first.
    """
    from scipy.io import loadmat

    try:
        wiki = loadmat(path / "wiki.mat")["wiki"][0, 0]
        fields = ("dob", "photo_taken", "face_score", "second_face_score")
        born, taken, score, second_score = (wiki[field].ravel().astype(float) for field in fields)
        ages = _compute_ages(born, taken)
        faults = {"no face": ~np.isfinite(score), "two faces": np.isfinite(second_score),
                  "absurd age": (ages < 0) | (ages > 100)}
        usable, left_out = np.ones(len(ages), bool), {}
        for fault, rows in faults.items():
            left_out[fault] = int((usable & rows).sum())
            usable &= ~rows
        paths = [str(cell.item()) for cell in wiki["full_path"].ravel()[usable]]
    except Exception as error:  # scipy's reader raises many kinds of exceptions for a damaged file.
        raise LabError(f"{path / 'wiki.mat'} is not IMDB-WIKI's wiki.mat ({error}); fetch it again") from error
    return paths, ages[usable].astype(np.float32), left_out


def _compute_ages(dob: np.ndarray, photo_taken: np.ndarray) -> np.ndarray:
    """Return ages in years, int64 [n]; dates of birth are Matlab's, in days since the year 0."""
    dob, photo_taken = (np.nan_to_num(column, posinf=0, neginf=0) for column in (dob, photo_taken))
    days = dob.astype(np.int64) - 719_529  # Matlab's number of 1 January 1970.
    months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)  # Since January 1970.
    return photo_taken.astype(np.int64) - 1970 - months // 12 - (months % 12 >= 6)
