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
    """A data set of the labs. `labs data fetch NAME` downloads it; do not commit it."""

    name: str
    title: str
    url: str
    filename: str
    size: int | None  # Bytes of the download; None if the host does not state it.
    checksum: str | None  # "sha256:..."; None if none is published: then that of the first download is enforced.
    unpacked: int  # Approximate bytes after unpacking.
    images: int
    classes: int
    licence: str
    citation: str
    layout: str
    folder: str  # Below the data folder.
    inner: str  # The top folder inside the archive.
    required: tuple[str, ...]  # Glob patterns that must match in the inner folder.
    image_tree: bool = False  # Whether `--data` may name any tree with one folder per class; its reader checks it.


_SETS = [
    Dataset(
        name="mnist", title="MNIST handwritten digits", filename="mnist.npz",
        url="https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz",
        size=11_490_434, checksum="sha256:731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1",
        unpacked=11_490_434, images=70_000, classes=10, licence="CC BY-SA 3.0",
        citation="Y. LeCun, L. Bottou, Y. Bengio, P. Haffner: Gradient-based learning applied to document recognition, "
                 "Proceedings of the IEEE 86(11), 1998.",
        layout="mnist.npz with x_train, y_train, x_test, y_test (uint8)",
        folder="mnist", inner="", required=("mnist.npz",),
    ),
    Dataset(
        name="cifar10", title="CIFAR-10, binary version", filename="cifar-10-binary.tar.gz",
        url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        size=170_052_171, checksum="sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        unpacked=184_400_000, images=60_000, classes=10, licence="none stated; its author asks to be cited",
        citation="A. Krizhevsky: Learning multiple layers of features from tiny images, technical report, "
                 "University of Toronto, 2009.",
        layout="data_batch_1.bin ... test_batch.bin, made of records: 1 byte of label, 3072 of pixels",
        folder="cifar10", inner="cifar-10-batches-bin", required=("data_batch_1.bin", "test_batch.bin"),
    ),
    Dataset(
        name="fruits360", title="Fruits-360, 100 x 100 pixels", filename="fruits-360-100x100-main.zip",
        url="https://github.com/fruits-360/fruits-360-100x100/archive/refs/heads/main.zip",
        size=None, checksum=None,  # GitHub packs the archive while it sends it, and the data set still grows.
        unpacked=1_500_000_000, images=102_639, classes=155, licence="CC BY-SA 4.0",
        citation="M. Oltean: Fruits-360 dataset, 2017-.",
        layout="Training/VARIETY/*.jpg and Test/VARIETY/*.jpg",
        folder="fruits360", inner="fruits-360-100x100-main", required=("Training", "Test"), image_tree=True,
    ),
    Dataset(
        name="caltech256", title="Caltech256 object categories", filename="256_ObjectCategories.tar",
        url="https://data.caltech.edu/records/nyy15-4j048/files/256_ObjectCategories.tar",
        size=1_183_006_720,
        checksum="sha512:c71e604fa72092f5235dfdde8821ae58d3c7ba35ee0ce81bfbf397e1061f6f89"
                 "f84c7ee400049244a3bd940b63a45a3754d7a788c5d2cb3f60baee02385c665a",
        unpacked=1_183_006_720, images=30_607, classes=257, licence="CC BY 4.0",
        citation="G. Griffin, A. Holub, P. Perona: Caltech 256, CaltechDATA, 2022, doi:10.22002/D1.20087.",
        layout="256_ObjectCategories/001.ak47/001_0001.jpg ... 257.clutter",
        folder="caltech256", inner="256_ObjectCategories", required=("*/",), image_tree=True,
    ),
    Dataset(
        name="imdb_wiki", title="IMDB-WIKI, faces from Wikipedia, cropped", filename="wiki_crop.tar",
        url="https://data.vision.ee.ethz.ch/cvl/rrothe/imdb-wiki/static/wiki_crop.tar",
        size=None, checksum=None,
        unpacked=1_000_000_000, images=62_328, classes=101, licence="academic research only",
        citation="R. Rothe, R. Timofte, L. Van Gool: Deep expectation of real and apparent age from a single image "
                 "without facial landmarks, International Journal of Computer Vision 126, 2018.",
        layout="00 ... 99/ID_BIRTHDATE_YEAR.jpg and wiki.mat (dob, photo_taken, full_path, face_score ...)",
        folder="imdb_wiki", inner="wiki_crop", required=("wiki.mat",),
    ),
]
DATASETS: dict[str, Dataset] = {dataset.name: dataset for dataset in _SETS}


def get(name: str) -> Dataset:
    """Return the data set with this name.

    Raises:
        LabError: No data set has this name.
    """
    if name not in DATASETS:
        raise LabError(f"unknown data set {name!r}; there are {', '.join(DATASETS)}")
    return DATASETS[name]


def locate(name: str, data: str) -> Path:
    """Return the folder of a data set, in the layout that the registry names.

    Args:
        name: A name in the registry.
        data: "embedded", "real" (what `labs data fetch` downloaded) or the path of a folder. For an image tree that
            folder may hold any tree with one folder per class; the tree's reader checks it.

    Raises:
        LabError: The folder does not exist, or has another layout.
    """
    dataset = get(name)
    if data == "embedded":
        return check_layout(dataset, make_synthetic(name))
    if data != "real":
        return _own(dataset, data)
    home = paths.data_dir() / dataset.folder
    if not home.is_dir():
        raise LabError(f"{name} is not in {home}; `labs data fetch {name}` downloads it, "
                       "--data embedded needs no network")
    return check_layout(dataset, home)


def check_layout(dataset: Dataset, home: Path) -> Path:
    """Return the archive's top folder in `home`, or `home`, after a check that the required files are there.

    Raises:
        LabError: A required file is missing.
    """
    top = home / dataset.inner
    top = top if top.is_dir() else home
    missing = [pattern for pattern in dataset.required if not any(top.glob(pattern))]
    if missing:
        raise LabError(f"{top} is not {dataset.title}: no {' and no '.join(missing)}; wanted: {dataset.layout}")
    return top


def _own(dataset: Dataset, data: str) -> Path:
    """Return the folder that a student names, or the file for a data set of one file."""
    home, shown = paths.expand_home(data, "--data"), printable(data)
    try:
        if home.is_file() and dataset.filename in dataset.required:
            return home
        if home.is_file():
            raise LabError(f"--data {shown} is a file; unpack it if it is an archive, and name the folder")
        if not data or not home.is_dir():
            raise LabError(f"--data {shown}: there is no such folder; use embedded, real or a folder")
        if dataset.image_tree:
            return home / dataset.inner if (home / dataset.inner).is_dir() else home
        return check_layout(dataset, home)
    except OSError as error:
        raise LabError(f"--data {shown} cannot be read ({error.strerror}); check the path and its permissions"
                       ) from None
