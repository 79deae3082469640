"""Bring the real data sets here, check them, find them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from labs.datasets.archives import unpack
from labs.datasets.download import download
from labs.datasets.locks import exclusive, remove_leftovers
from labs.datasets.registry import DATASETS, Dataset, get
from labs.datasets.synthetic.embedded import digest, embedded, stand_in, verify_embedded
from labs.run import atomic, paths
from labs.run.errors import LabError
from labs.run.text import printable


def fetch(name: str, root: Path | None = None) -> Path:
    """Download, check and unpack a data set, unless it is here; return its folder.

    One process downloads, the others wait. What has arrived is kept: this call or the next goes on there.

    Args:
        root: Where the data sets live instead of `places.data_dir()`.

    Raises:
        LabError: No network, no room, or not the file that was promised.
    """
    dataset, root = get(name), root or paths.data_dir()
    home = root / dataset.folder
    if not home.is_dir():
        with exclusive(_desk(dataset, root) / "lock", f"downloading {name}"):
            if not home.is_dir():
                remove_leftovers(home)
                _check_room(dataset, root)
                _install(dataset, _download(dataset, root), home, root)
    return _inner(dataset, home)


def verify(name: str, root: Path | None = None) -> str:
    """Compare every byte of a data set and of its stand-in with what was downloaded or drawn.

    Raises:
        LabError: Something differs, or nothing is here yet.
    """
    dataset, root = get(name), root or paths.data_dir()
    findings = []
    if (root / dataset.folder).is_dir():
        findings.append(_verify_real(dataset, root))
    if stand_in(name, root).is_dir():
        findings.append(verify_embedded(name, root))
    if not findings:
        raise LabError(f"nothing of {name} is here yet; `labs data fetch {name}` downloads it")
    return "\n".join(findings)


def locate(name: str, data: str) -> Path:
    """Return the folder of a data set, in the layout that the registry gives.

    Args:
        data: "embedded", "real" (what `labs data fetch` downloaded) or a folder of the student's own. In place of a
            set of pictures that folder may hold any tree of a folder per class, which the tree's reader checks.

    Raises:
        LabError: It is not there, or not in that layout.
    """
    dataset = get(name)
    if data == "embedded":
        return _inner(dataset, embedded(name))
    if data != "real":
        return _own(dataset, data)
    home = paths.data_dir() / dataset.folder
    if not home.is_dir():
        cure = f"`labs data fetch {name}` downloads it, --data embedded needs no network"
        raise LabError(f"{name} is not in {home}; {cure}")
    return _inner(dataset, home)


def _own(dataset: Dataset, data: str) -> Path:
    """Return the folder (or the file, for a set of one file) that a student names."""
    home = Path(data).expanduser()
    shown = printable(data)
    try:
        if home.is_file() and dataset.filename in dataset.parts:
            return home
        if home.is_file():
            raise LabError(f"--data {shown} is a file; unpack it if it is an archive, and name the folder")
        if not data or not home.is_dir():
            raise LabError(f"--data {shown}: there is no such folder; say embedded, real or a folder")
        if dataset.pictures:
            return home / dataset.inner if (home / dataset.inner).is_dir() else home
        return _inner(dataset, home)
    except (OSError, ValueError) as error:  # A name that is too long, a folder that may not be read, a NUL.
        reason = getattr(error, "strerror", None) or error
        raise LabError(f"--data {shown} cannot be read ({reason}); check the path and its permissions") from None


SYNTHETIC = ("Synthetic data: small images that the kit generates itself, in the real set's layout. Labs use them by "
             "default (--data embedded); --data real takes the real set.")


def listing() -> str:
    """Return a table of the data sets and of what is here."""
    root = paths.data_dir()
    rows = [("name", "images", "classes", "download", "real data", "synthetic data", "licence")]
    for dataset in DATASETS.values():
        size = f"{'' if dataset.size else '~'}{(dataset.size or dataset.unpacked) / 1e6:,.0f} MB"
        synthetic = "generated" if stand_in(dataset.name, root).is_dir() else "generated on first use"
        counts = f"{dataset.images:,}", f"{dataset.classes}"
        rows.append((dataset.name, *counts, size, _state(dataset, root), synthetic, dataset.licence))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join([*lines, "", SYNTHETIC])


def _state(dataset: Dataset, root: Path) -> str:
    part = _part(dataset, root)
    if (root / dataset.folder).is_dir():
        return "fetched"
    return f"{part.stat().st_size / 1e6:,.0f} MB so far" if part.exists() else "not fetched"


def _desk(dataset: Dataset, root: Path) -> Path:
    """The folder of a download: the archive while it lasts, and record.json, which stays."""
    return root / "downloads" / dataset.name


def _part(dataset: Dataset, root: Path) -> Path:
    return _desk(dataset, root) / f"{dataset.filename}.part"


def _record(dataset: Dataset, root: Path) -> dict:
    path = _desk(dataset, root) / "record.json"
    return json.loads(path.read_text()) if path.exists() else {}


def _inner(dataset: Dataset, home: Path) -> Path:
    """Step into the folder that the archive brings, and check that the set's parts are there."""
    inner = home / dataset.inner
    inner = inner if inner.is_dir() else home
    missing = [part for part in dataset.parts if not any(inner.glob(part))]
    if missing:
        raise LabError(
            f"{inner} is not {dataset.title}: no {' and no '.join(missing)}; wanted: {dataset.layout}"
        )
    return inner


def _check_room(dataset: Dataset, root: Path) -> None:
    if not os.access(root, os.W_OK):
        raise LabError(f"{root} cannot be written; set LABS_DATA to a folder of your own")
    part = _part(dataset, root)
    here = part.stat().st_size if part.exists() else 0
    needed = (dataset.size or dataset.unpacked) - here + dataset.unpacked
    free = shutil.disk_usage(root).free
    if needed > free:
        raise LabError(
            f"{dataset.name} needs {needed / 1e9:.1f} GB in {root}, where {free / 1e9:.1f} GB are free; "
            "set LABS_DATA to a larger disk, or stay with --data embedded"
        )


def _install(dataset: Dataset, archive: Path, home: Path, root: Path) -> None:
    """Unpack aside, note what came, rename; the archive goes when it has served or has proved bad."""
    import pooch

    try:
        with atomic.folder(home) as fresh:
            unpack(archive, fresh, max(2 * dataset.files, 10), 2 * dataset.unpacked)
            _inner(dataset, fresh)
            checksum = dataset.checksum or f"sha256:{pooch.file_hash(str(archive))}"
            size = archive.stat().st_size
            record = {"url": dataset.url, "bytes": size, "checksum": checksum, "digest": digest(fresh)}
            atomic.write_json(_desk(dataset, root) / "record.json", record)
            os.sync()  # So that no power cut leaves a renamed folder of empty files.
    except OSError as error:  # A full disk: the archive is good and stays.
        raise LabError(f"cannot unpack {archive} ({error.strerror})") from error
    except LabError:
        archive.unlink()
        raise
    archive.unlink()


def _verify_real(dataset: Dataset, root: Path) -> str:
    home, record = root / dataset.folder, _record(dataset, root)
    if not record:
        raise LabError(f"{home} was not brought by `labs data fetch`: nothing to compare it with")
    if digest(home) != record["digest"]:
        raise LabError(f"{home} is not what was downloaded; remove it and fetch {dataset.name} again")
    return f"{dataset.name}: {home} is as downloaded from {record['url']} ({record['checksum']})"


def _download(dataset: Dataset, root: Path) -> Path:
    """Return the archive, checked against the published checksum or the first one seen."""
    import pooch

    pooch.get_logger().setLevel("WARNING")
    desk, known = _desk(dataset, root), dataset.checksum or _record(dataset, root).get("checksum")
    for left_over in desk.glob("tmp*"):  # pooch's, of a process that was killed.
        left_over.unlink()

    def resume(url: str, output_file: str, _: object) -> None:
        # pooch alone cannot go on with half a file.
        download(url, _part(dataset, root), dataset.size, dataset.size or 2 * dataset.unpacked)
        _part(dataset, root).replace(output_file)

    try:
        return Path(pooch.retrieve(dataset.url, known, dataset.filename, desk, downloader=resume))
    except ValueError as error:  # pooch has removed the file.
        wrong = "its checksum is not the published one; fetch it again, or tell your teacher"
        if not dataset.checksum:
            wrong = f"it is not the one first seen; if it may be another, remove {desk / 'record.json'}"
        raise LabError(f"{dataset.filename} is damaged or has changed: {wrong}") from error
    except OSError as error:
        raise LabError(f"cannot write in {desk} ({error.strerror}); what has arrived is kept") from error
