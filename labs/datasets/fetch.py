"""Download the real data sets, check, unpack, verify and list them."""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from pathlib import Path
from urllib.parse import urlsplit

from labs.datasets.locks import make_folder_once
from labs.datasets.registry import DATASETS, Dataset, check_layout
from labs.datasets.synthetic import DIGESTS, folder_digest, synthetic_folder
from labs.run import atomic, paths, terminal
from labs.run.errors import LabError
from labs.run.text import one_line

SYNTHETIC = ("Synthetic data: small images that the kit generates itself, in the real set's layout. Labs use them by "
             "default (--data embedded); --data real takes the real set.")


def fetch_dataset(name: str) -> Path:
    """Download, check and unpack a data set unless it is here, and return its folder.

    One process downloads, and the others wait.

    Args:
        name: A name in the registry.

    Raises:
        LabError: No network, a full disk, or another file than expected.
    """
    dataset, home = DATASETS[name], paths.data_dir() / name
    return check_layout(dataset, make_folder_once(home, f"downloading {name}", lambda fresh: _install(dataset, fresh)))


def _install(dataset: Dataset, fresh: Path) -> None:
    """Download and unpack a data set into an empty folder, and write the digest that `verify_dataset` compares."""
    host = urlsplit(dataset.url).netloc
    terminal.note(f"downloading {dataset.filename} from {host}")
    try:
        _unpack(_download(dataset, fresh), fresh)
    except (ValueError, tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise LabError(f"{dataset.filename} from {host} is damaged, has changed or is a log-in page "
                       f"({one_line(error)}); fetch it again, or tell your teacher") from error
    except OSError as error:
        raise LabError(f"cannot fetch {dataset.filename} from {host} into {fresh.parent} ({one_line(error)}); fetch "
                       "it again later, set LABS_DATA to a larger disk, or use --data embedded, which needs no network"
                       ) from error
    check_layout(dataset, fresh)
    atomic.write_text(_digest_file(dataset.name), folder_digest(fresh))


def _download(dataset: Dataset, folder: Path) -> Path:
    """Return the archive, checked against the published checksum if there is one."""
    import pooch
    from tqdm import tqdm

    pooch.get_logger().setLevel("WARNING")
    # disable=None: no progress bar unless stderr is a terminal; a batch job's log needs none.
    bar = tqdm(total=dataset.megabytes * 10**6, unit="B", unit_scale=True, desc=dataset.filename, disable=None)
    downloader = pooch.HTTPDownloader(bar, 1 << 20, timeout=60, headers={"Accept-Encoding": "identity"})
    return Path(pooch.retrieve(dataset.url, dataset.checksum, dataset.filename, folder, downloader=downloader))


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack a zip or a tar and remove it; any other file is the data set itself."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as zipped:
            zipped.extractall(folder)  # It drops a leading "/" and every "..", and makes no links.
    elif ".tar" in archive.suffixes:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    else:
        return
    archive.unlink()


def verify_dataset(name: str) -> str:
    """Compare every byte of a data set and of its synthetic version with what was downloaded or generated.

    Args:
        name: A name in the registry.

    Raises:
        LabError: A file differs, or nothing has been downloaded yet.
    """
    digests = {synthetic_folder(name): DIGESTS[name]}
    if _digest_file(name).exists():
        digests[paths.data_dir() / name] = _digest_file(name).read_text()
    present = {home: digest for home, digest in digests.items() if home.is_dir()}
    if not present:
        raise LabError(f"{name} has not been downloaded yet; `labs data fetch {name}` downloads it")
    for home, digest in present.items():
        if folder_digest(home) != digest:
            raise LabError(f"{home} is not what was downloaded or generated; remove it, then fetch {name} again "
                           "or start a lab, which generates it")
    return "\n".join(f"{name}: {home} is as downloaded or generated (sha256 {digest})"
                     for home, digest in present.items())


def _digest_file(name: str) -> Path:
    return paths.data_dir() / f"{name}.sha256"


def listing() -> str:
    """Return a table of the data sets and of what has been downloaded or generated."""
    rows = [("name", "images", "classes", "download", "real data", "synthetic data", "licence")]
    for dataset in DATASETS.values():
        real = "fetched" if (paths.data_dir() / dataset.name).is_dir() else "not fetched"
        synthetic = "generated" if synthetic_folder(dataset.name).is_dir() else "generated on first use"
        rows.append((dataset.name, f"{dataset.images:,}", f"{dataset.classes}", f"{dataset.megabytes:,} MB", real,
                     synthetic, dataset.licence))
    return "\n".join([terminal.table(rows, left=True), "", SYNTHETIC])
