"""Download the real data sets, check and unpack them, and list what is here."""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from pathlib import Path
from urllib.parse import urlsplit

from labs.datasets.locks import make_folder_once
from labs.datasets.registry import DATASETS, check_layout
from labs.datasets.synthetic import synthetic_folder
from labs.run import paths, terminal
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
    home = paths.data_dir() / name
    return check_layout(name, make_folder_once(home, f"downloading {name}", lambda fresh: _install(name, fresh)))


def _install(name: str, fresh: Path) -> None:
    """Download and unpack a data set into an empty folder."""
    file, host = DATASETS[name].filename, urlsplit(DATASETS[name].url).netloc
    terminal.note(f"downloading {file} from {host}")
    try:
        _unpack(_download(name, fresh), fresh)
    except (ValueError, tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise LabError(f"{file} from {host} is damaged, has changed or is a log-in page ({one_line(error)}); "
                       "fetch it again, or tell your teacher") from error
    except OSError as error:
        raise LabError(f"cannot fetch {file} from {host} into {fresh.parent} ({one_line(error)}); fetch it again "
                       "later, set LABS_DATA to a larger disk, or use --data embedded, which needs no network"
                       ) from error
    check_layout(name, fresh)


def _download(name: str, folder: Path) -> Path:
    """Return the archive, checked against the published checksum if there is one."""
    import pooch
    from tqdm import tqdm

    dataset = DATASETS[name]
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


def listing() -> str:
    """Return a table of the data sets and of what has been downloaded or generated."""
    rows = [("name", "download", "real data", "synthetic data", "licence")]
    for name, dataset in DATASETS.items():
        real = "fetched" if (paths.data_dir() / name).is_dir() else "not fetched"
        synthetic = "generated" if synthetic_folder(name).is_dir() else "generated on first use"
        rows.append((name, f"{dataset.megabytes:,} MB", real, synthetic, dataset.licence))
    return "\n".join([terminal.table(rows, left=True), "", SYNTHETIC])
