"""The data sets of the labs: source, size and licence, the folder of each, and downloads."""

import dataclasses
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from labs.run import paths, terminal
from labs.run.atomic import make_folder_once
from labs.run.catalogue import Lab
from labs.run.errors import LabError, one_line, printable

SYNTHETIC = 1
"""Version of the synthetic data. Increment when a file changes: that makes new folders."""


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A data set of the labs. `labs data fetch NAME` downloads it into the data folder; do not commit it."""

    url: str
    checksum: str | None  # "sha256:..."; None if none is published.
    megabytes: int  # Of the download, approximately.
    licence: str
    required: tuple[str, ...]  # Glob patterns that must match in its folder.
    inner: str = ""  # The top folder inside the archive.
    image_tree: bool = False  # Whether `--data` may name any tree with one folder per class; its reader checks it.

    @property
    def filename(self) -> str:
        return self.url.rpartition("/")[2]


DATASETS = {
    "mnist": Dataset(
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz",
        "sha256:731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1",
        11, "CC BY-SA 3.0", required=("mnist.npz",)),
    "cifar10": Dataset(
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        170, "none stated; its author asks to be cited", ("data_batch_1.bin", "test_batch.bin"),
        inner="cifar-10-batches-bin"),
    "fruits360": Dataset(
        "https://github.com/fruits-360/fruits-360-100x100/archive/refs/heads/main.zip",
        None,  # GitHub packs the archive while it sends it, and the data set still grows.
        1500, "CC BY-SA 4.0", ("Training", "Test"), inner="fruits-360-100x100-main", image_tree=True),
    "caltech256": Dataset(
        "https://data.caltech.edu/records/nyy15-4j048/files/256_ObjectCategories.tar",
        "sha512:c71e604fa72092f5235dfdde8821ae58d3c7ba35ee0ce81bfbf397e1061f6f89"
        "f84c7ee400049244a3bd940b63a45a3754d7a788c5d2cb3f60baee02385c665a",
        1183, "CC BY 4.0", ("*/",), inner="256_ObjectCategories", image_tree=True),
    "imdb_wiki": Dataset(
        "https://data.vision.ee.ethz.ch/cvl/rrothe/imdb-wiki/static/wiki_crop.tar",
        None, 1000, "academic research only", ("wiki.mat",), inner="wiki_crop"),
}


def check_data(lab: Lab, config: Any) -> None:
    """Raise LabError if a run's data are missing: its workers would find that only after some seconds."""
    if (data := getattr(config, "data", "embedded")) != "embedded":
        locate(lab.data_set, data)


def locate(name: str, data: str) -> Path:
    """Return the folder of a data set.

    Args:
        name: A name in the registry.
        data: "embedded", "real" (what `labs data fetch` downloaded) or the path of a folder.

    Raises:
        LabError: The folder does not exist, or has another layout.
    """
    dataset, home = DATASETS[name], Path(data).expanduser()
    if data == "embedded":
        home = paths.data_dir() / "embedded" / f"{name}-v{SYNTHETIC}"
        make_folder_once(home, f"generating the synthetic {name}", lambda fresh: _generate(name, fresh))
    elif data == "real":
        home = paths.data_dir() / name
        if not home.is_dir():
            raise LabError(f"{name} is not in {home}; `labs data fetch {name}` downloads it, "
                           "--data embedded needs no network")
    elif home.is_file() and dataset.filename in dataset.required:
        return home
    elif not data or not home.is_dir():
        raise LabError(f"--data {printable(data)}: there is no such folder; use embedded, real or a folder, and unpack "
                       "an archive")
    elif dataset.image_tree:
        return _top_folder(name, home)
    return check_layout(name, home)


def _generate(name: str, fresh: Path) -> None:
    """Run the program that generates a synthetic data set, which only the first run needs."""
    command = [sys.executable, "-P", "-m", "labs.datasets.synthetic", name, str(fresh)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise OSError(done.stderr.strip().rpartition("\n")[2])


def check_layout(name: str, home: Path) -> Path:
    """Return the archive's top folder in `home`, or `home`, after a check that the required files are there."""
    top = _top_folder(name, home)
    missing = [pattern for pattern in DATASETS[name].required if not any(top.glob(pattern))]
    if missing:
        raise LabError(f"{printable(top)} is not {name}: no {' and no '.join(missing)}; data/README.md has its layout")
    return top


def _top_folder(name: str, home: Path) -> Path:
    inner = home / DATASETS[name].inner
    return inner if inner.is_dir() else home


def fetch_dataset(name: str) -> Path:
    """Download, check and unpack a data set unless it is here, and return its folder."""
    home = paths.data_dir() / name
    return check_layout(name, make_folder_once(home, f"downloading {name}", lambda fresh: _install(name, fresh)))


def _install(name: str, fresh: Path) -> None:
    """Download a data set into an empty folder, check it against the published checksum, and unpack it."""
    import pooch

    dataset, host = DATASETS[name], urlsplit(DATASETS[name].url).netloc
    terminal.note(f"downloading {dataset.filename} from {host}")
    pooch.get_logger().setLevel("WARNING")
    downloader = pooch.HTTPDownloader(sys.stderr.isatty(), 1 << 20, timeout=60,
                                      headers={"Accept-Encoding": "identity"})
    try:
        file = Path(pooch.retrieve(dataset.url, dataset.checksum, dataset.filename, fresh, downloader=downloader))
        if file.suffix != ".npz":
            # A zip's reader leaves out paths outside the folder; `filter` is for tar.
            shutil.unpack_archive(file, fresh, filter=None if file.suffix == ".zip" else "data")
            file.unlink()
    except Exception as error:  # A broken connection, a log-in page, a damaged archive, a full disk.
        raise LabError(f"cannot fetch {dataset.filename} from {host} into {fresh.parent} ({one_line(error)}); fetch it "
                       "again later, set LABS_DATA to a larger disk, or use --data embedded, which needs no network"
                       ) from error
    check_layout(name, fresh)


def listing() -> str:
    """Return a table of the data sets and of what has been downloaded."""
    rows = [("name", "download", "--data real", "licence")]
    for name, dataset in DATASETS.items():
        real = "fetched" if (paths.data_dir() / name).is_dir() else "not fetched"
        rows.append((name, f"{dataset.megabytes:,} MB", real, dataset.licence))
    return terminal.table(rows, left=True)
