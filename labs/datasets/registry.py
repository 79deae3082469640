"""The data sets of the labs: source, size, licence, layout, and the folder of each."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from labs.datasets.synthetic import make_synthetic
from labs.run import paths
from labs.run.errors import LabError
from labs.run.text import printable


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A data set of the labs. `labs data fetch NAME` downloads it into the data folder; do not commit it."""

    name: str
    title: str
    url: str
    filename: str
    checksum: str | None  # "sha256:..."; None if none is published.
    megabytes: int  # Of the download, approximately.
    images: int
    classes: int
    licence: str
    citation: str
    layout: str
    inner: str  # The top folder inside the archive.
    required: tuple[str, ...]  # Glob patterns that must match in the inner folder.
    image_tree: bool = False  # Whether `--data` may name any tree with one folder per class; its reader checks it.


_SETS = [
    Dataset(
        name="mnist", title="MNIST handwritten digits", filename="mnist.npz",
        url="https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz",
        checksum="sha256:731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1",
        megabytes=11, images=70_000, classes=10, licence="CC BY-SA 3.0",
        citation="Y. LeCun et al.: Gradient-based learning applied to document recognition, Proc. IEEE 86(11), 1998.",
        layout="mnist.npz with x_train, y_train, x_test, y_test (uint8)", inner="", required=("mnist.npz",),
    ),
    Dataset(
        name="cifar10", title="CIFAR-10, binary version", filename="cifar-10-binary.tar.gz",
        url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        checksum="sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        megabytes=170, images=60_000, classes=10, licence="none stated; its author asks to be cited",
        citation="A. Krizhevsky: Learning multiple layers of features from tiny images, University of Toronto, 2009.",
        layout="data_batch_1.bin ... test_batch.bin, made of records: 1 byte of label, 3072 of pixels",
        inner="cifar-10-batches-bin", required=("data_batch_1.bin", "test_batch.bin"),
    ),
    Dataset(
        name="fruits360", title="Fruits-360, 100 x 100 pixels", filename="fruits-360-100x100-main.zip",
        url="https://github.com/fruits-360/fruits-360-100x100/archive/refs/heads/main.zip",
        checksum=None,  # GitHub packs the archive while it sends it, and the data set still grows.
        megabytes=1500, images=102_639, classes=155, licence="CC BY-SA 4.0",
        citation="M. Oltean: Fruits-360 dataset, 2017-.", layout="Training/VARIETY/*.jpg and Test/VARIETY/*.jpg",
        inner="fruits-360-100x100-main", required=("Training", "Test"), image_tree=True,
    ),
    Dataset(
        name="caltech256", title="Caltech256 object categories", filename="256_ObjectCategories.tar",
        url="https://data.caltech.edu/records/nyy15-4j048/files/256_ObjectCategories.tar",
        checksum="sha512:c71e604fa72092f5235dfdde8821ae58d3c7ba35ee0ce81bfbf397e1061f6f89"
                 "f84c7ee400049244a3bd940b63a45a3754d7a788c5d2cb3f60baee02385c665a",
        megabytes=1183, images=30_607, classes=257, licence="CC BY 4.0",
        citation="G. Griffin, A. Holub, P. Perona: Caltech 256, CaltechDATA, 2022, doi:10.22002/D1.20087.",
        layout="256_ObjectCategories/001.ak47/001_0001.jpg ... 257.clutter",
        inner="256_ObjectCategories", required=("*/",), image_tree=True,
    ),
    Dataset(
        name="imdb_wiki", title="IMDB-WIKI, faces from Wikipedia, cropped", filename="wiki_crop.tar",
        url="https://data.vision.ee.ethz.ch/cvl/rrothe/imdb-wiki/static/wiki_crop.tar",
        checksum=None, megabytes=1000, images=62_328, classes=101, licence="academic research only",
        citation="R. Rothe et al.: Deep expectation of real and apparent age from a single image, IJCV 126, 2018.",
        layout="00 ... 99/ID_BIRTHDATE_YEAR.jpg and wiki.mat (dob, photo_taken, full_path, face_score ...)",
        inner="wiki_crop", required=("wiki.mat",),
    ),
]
DATASETS: dict[str, Dataset] = {dataset.name: dataset for dataset in _SETS}


def locate(name: str, data: str) -> Path:
    """Return the folder of a data set, in the layout that the registry names.

    Args:
        name: A name in the registry.
        data: "embedded", "real" (what `labs data fetch` downloaded) or the path of a folder. For an image tree that
            folder may hold any tree with one folder per class; the tree's reader checks it.

    Raises:
        LabError: The folder does not exist, or has another layout.
    """
    dataset, home = DATASETS[name], paths.data_dir() / name
    if data == "embedded":
        return check_layout(dataset, make_synthetic(name))
    if data != "real":
        return _locate_own(dataset, data)
    if not home.is_dir():
        raise LabError(f"{name} is not in {home}; `labs data fetch {name}` downloads it, "
                       "--data embedded needs no network")
    return check_layout(dataset, home)


def check_layout(dataset: Dataset, home: Path) -> Path:
    """Return the archive's top folder in `home`, or `home`, after a check that the required files are there.

    Raises:
        LabError: A required file is missing.
    """
    top = _top_folder(dataset, home)
    missing = [pattern for pattern in dataset.required if not any(top.glob(pattern))]
    if missing:
        raise LabError(f"{printable(top)} is not {dataset.title}: no {' and no '.join(missing)}; "
                       f"wanted: {dataset.layout}")
    return top


def _top_folder(dataset: Dataset, home: Path) -> Path:
    return home / dataset.inner if (home / dataset.inner).is_dir() else home


def _locate_own(dataset: Dataset, data: str) -> Path:
    """Return the folder that a student names, or the file for a data set of one file."""
    home = Path(data).expanduser()
    if home.is_file() and dataset.filename in dataset.required:
        return home
    if home.is_file():
        raise LabError(f"--data {printable(data)} is a file; unpack it if it is an archive, and name the folder")
    if not data or not home.is_dir():
        raise LabError(f"--data {printable(data)}: there is no such folder; use embedded, real or a folder")
    return _top_folder(dataset, home) if dataset.image_tree else check_layout(dataset, home)
