"""Download the real data sets, check and unpack them, and locate them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from labs.datasets.archives import unpack
from labs.datasets.download import download_file, file_size
from labs.datasets.locks import make_once
from labs.datasets.registry import DATASETS, Dataset, get
from labs.datasets.synthetic.embedded import folder_digest, make_synthetic, synthetic_folder, verify_synthetic
from labs.run import atomic, paths, terminal
from labs.run.errors import LabError
from labs.run.text import printable


def fetch_dataset(name: str, root: Path | None = None) -> Path:
    """Download, check and unpack a data set unless it is here, and return its folder.

    One process downloads, and the others wait. The next call continues a partial download.

    Args:
        name: A name in the registry.
        root: The folder of all data sets; by default `paths.data_dir()`.

    Raises:
        LabError: No network, a full disk, or another file than expected.
    """
    dataset, root = get(name), root or paths.data_dir()
    home = root / dataset.folder
    with make_once(home, _downloads(dataset, root) / "lock", f"downloading {name}") as missing:
        if missing:
            _check_disk(dataset, root)
            _install(dataset, _download(dataset, root), home, root)
    return _inner(dataset, home)


def verify_dataset(name: str, root: Path | None = None) -> str:
    """Compare every byte of a data set and of its synthetic version with what was downloaded or generated.

    Args:
        name: A name in the registry.
        root: The folder of all data sets; by default `paths.data_dir()`.

    Raises:
        LabError: Something differs, or nothing has been downloaded yet.
    """
    dataset, root = get(name), root or paths.data_dir()
    lines = []
    if (root / dataset.folder).is_dir():
        lines.append(_verify_real(dataset, root))
    if synthetic_folder(name, root).is_dir():
        lines.append(verify_synthetic(name, root))
    if not lines:
        raise LabError(f"{name} has not been downloaded yet; `labs data fetch {name}` downloads it")
    return "\n".join(lines)


def locate(name: str, data: str) -> Path:
    """Return the folder of a data set, in the layout that the registry names.

    Args:
        name: A name in the registry.
        data: "embedded", "real" (what `labs data fetch` downloaded) or the path of a folder. For an image tree that
            folder may hold any tree with one folder per class; the tree's reader checks it.

    Raises:
        LabError: It is not there, or not in that layout.
    """
    dataset = get(name)
    if data == "embedded":
        return _inner(dataset, make_synthetic(name))
    if data != "real":
        return _own(dataset, data)
    home = paths.data_dir() / dataset.folder
    if not home.is_dir():
        raise LabError(f"{name} is not in {home}; `labs data fetch {name}` downloads it, "
                       "--data embedded needs no network")
    return _inner(dataset, home)


def _own(dataset: Dataset, data: str) -> Path:
    """Return the folder that a student names, or the file for a data set of one file."""
    home, shown = paths.named(data, "--data"), printable(data)
    try:
        if home.is_file() and dataset.filename in dataset.required:
            return home
        if home.is_file():
            raise LabError(f"--data {shown} is a file; unpack it if it is an archive, and name the folder")
        if not data or not home.is_dir():
            raise LabError(f"--data {shown}: there is no such folder; use embedded, real or a folder")
        if dataset.image_tree:
            return home / dataset.inner if (home / dataset.inner).is_dir() else home
        return _inner(dataset, home)
    except OSError as error:
        raise LabError(f"--data {shown} cannot be read ({error.strerror}); check the path and its permissions"
                       ) from None


SYNTHETIC = ("Synthetic data: small images that the kit generates itself, in the real set's layout. Labs use them by "
             "default (--data embedded); --data real takes the real set.")


def listing() -> str:
    """Return a table of the data sets and of what has been downloaded or generated."""
    root = paths.data_dir()
    rows = [("name", "images", "classes", "download", "real data", "synthetic data", "licence")]
    for dataset in DATASETS.values():
        size = f"{'' if dataset.size else '~'}{(dataset.size or dataset.unpacked) / 1e6:,.0f} MB"
        synthetic = "generated" if synthetic_folder(dataset.name, root).is_dir() else "generated on first use"
        counts = f"{dataset.images:,}", f"{dataset.classes}"
        rows.append((dataset.name, *counts, size, _state(dataset, root), synthetic, dataset.licence))
    return "\n".join([terminal.table(rows, left=True), "", terminal.folded(SYNTHETIC)])


def _state(dataset: Dataset, root: Path) -> str:
    if (root / dataset.folder).is_dir():
        return "fetched"
    here = file_size(_partial(dataset, root))
    return f"{here / 1e6:,.0f} MB so far" if here else "not fetched"


def _downloads(dataset: Dataset, root: Path) -> Path:
    """Return the folder of a download: it holds the archive until that is unpacked, then record.json."""
    return root / "downloads" / dataset.name


def _partial(dataset: Dataset, root: Path) -> Path:
    return _downloads(dataset, root) / f"{dataset.filename}.part"


def _record(dataset: Dataset, root: Path) -> dict:
    path = _downloads(dataset, root) / "record.json"
    return json.loads(atomic.read_text(path)) if path.exists() else {}


def _inner(dataset: Dataset, home: Path) -> Path:
    """Return the archive's top folder in `home`, or `home`, after a check that the required files are there."""
    inner = home / dataset.inner
    inner = inner if inner.is_dir() else home
    missing = [pattern for pattern in dataset.required if not any(inner.glob(pattern))]
    if missing:
        raise LabError(f"{inner} is not {dataset.title}: no {' and no '.join(missing)}; wanted: {dataset.layout}")
    return inner


def _check_disk(dataset: Dataset, root: Path) -> None:
    if not os.access(root, os.W_OK):
        raise LabError(f"{root} cannot be written; set LABS_DATA to a folder of your own")
    here = file_size(_partial(dataset, root))
    needed = (dataset.size or dataset.unpacked) - here + dataset.unpacked
    free = shutil.disk_usage(root).free
    if needed > free:
        raise LabError(f"{dataset.name} needs {needed / 1e9:.1f} GB in {root}, where {free / 1e9:.1f} GB are free; "
                       "set LABS_DATA to a larger disk, or use --data embedded")


def _install(dataset: Dataset, archive: Path, home: Path, root: Path) -> None:
    """Unpack into a temporary folder, write record.json, rename; delete the archive when it is unpacked or bad."""
    import pooch

    try:
        with atomic.folder(home) as fresh:
            with terminal.ticking(f"unpacking {archive.name}"):
                unpack(archive, fresh, max(2 * dataset.files, 10), 2 * dataset.unpacked)
            _inner(dataset, fresh)
            checksum = dataset.checksum or f"sha256:{pooch.file_hash(str(archive))}"
            size = archive.stat().st_size
            record = {"url": dataset.url, "bytes": size, "checksum": checksum, "digest": folder_digest(fresh)}
            atomic.write_json(_downloads(dataset, root) / "record.json", record)
            os.sync()  # Otherwise a power failure could leave a renamed folder of empty files.
    except OSError as error:  # The disk is full: the archive is good, so it is kept.
        raise LabError(f"cannot unpack {archive} ({error.strerror})") from error
    except LabError:
        archive.unlink()
        raise
    archive.unlink()


def _verify_real(dataset: Dataset, root: Path) -> str:
    home, record = root / dataset.folder, _record(dataset, root)
    if not record:
        raise LabError(f"{home} was not downloaded by `labs data fetch`: there is nothing to compare it with")
    with terminal.ticking(f"reading {printable(home)}"):
        digest = folder_digest(home)
    if digest != record["digest"]:
        raise LabError(f"{home} is not what was downloaded; remove it and fetch {dataset.name} again")
    return f"{dataset.name}: {home} is as downloaded from {record['url']} ({record['checksum']})"


def _download(dataset: Dataset, root: Path) -> Path:
    """Return the archive, checked against the published checksum or that of the first download."""
    import pooch

    pooch.get_logger().setLevel("WARNING")
    folder, checksum = _downloads(dataset, root), dataset.checksum or _record(dataset, root).get("checksum")
    for leftover in folder.glob("tmp*"):  # Temporary files of pooch, from a killed process.
        leftover.unlink()

    def resume(url: str, output_file: str, _: object) -> None:
        # pooch alone cannot continue a partial download.
        partial = _partial(dataset, root)
        download_file(url, partial, dataset.size, dataset.size or 2 * dataset.unpacked)
        partial.replace(output_file)

    try:
        return Path(pooch.retrieve(dataset.url, checksum, dataset.filename, folder, downloader=resume))
    except ValueError as error:  # pooch has removed the file.
        wrong = ("its checksum is not the published one; fetch it again, or tell your teacher" if dataset.checksum else
                 "its checksum is not that of the first download; if a new version is expected, remove "
                 f"{folder / 'record.json'}")
        raise LabError(f"{dataset.filename} is damaged or has changed: {wrong}") from error
    except OSError as error:
        raise LabError(f"cannot write in {folder} ({error.strerror}); the partial download is kept") from error
