"""Download the real data sets, check, unpack, verify and list them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from labs.datasets.archives import unpack
from labs.datasets.locks import make_once
from labs.datasets.registry import DATASETS, Dataset, check_layout, get
from labs.datasets.synthetic import DIGESTS, folder_digest, synthetic_folder
from labs.run import atomic, paths, terminal
from labs.run.errors import LabError
from labs.run.text import one_line

if TYPE_CHECKING:
    import requests

PAUSES = (0, 2, 4, 8)
"""Seconds to wait before each attempt of a download."""
TIMEOUT = (10, 60)  # Seconds to connect; seconds without a byte.
CHUNK = 1 << 16  # Bytes; a killed process loses no more than this.
SYNTHETIC = ("Synthetic data: small images that the kit generates itself, in the real set's layout. Labs use them by "
             "default (--data embedded); --data real takes the real set.")


def fetch_dataset(name: str) -> Path:
    """Download, check and unpack a data set unless it is here, and return its folder.

    One process downloads, and the others wait. The next call continues a partial download.

    Args:
        name: A name in the registry.

    Raises:
        LabError: No network, a full disk, or another file than expected.
    """
    dataset, home = get(name), paths.data_dir() / get(name).folder
    with make_once(home, _downloads(dataset) / "lock", f"downloading {name}") as missing:
        if missing:
            _check_disk(dataset)
            _install(dataset, _download(dataset), home)
    return check_layout(dataset, home)


def _downloads(dataset: Dataset) -> Path:
    """Return the folder of a download: it holds the archive until that is unpacked, then record.json."""
    return paths.data_dir() / "downloads" / dataset.name


def _partial(dataset: Dataset) -> Path:
    return _downloads(dataset) / f"{dataset.filename}.part"


def _record(dataset: Dataset) -> dict:
    path = _downloads(dataset) / "record.json"
    return json.loads(atomic.read_text(path)) if path.exists() else {}


def _check_disk(dataset: Dataset) -> None:
    root, here = paths.data_dir(), (_partial(dataset), _downloads(dataset) / dataset.filename)
    have = sum(path.stat().st_size for path in here if path.exists())
    needed = max(0, (dataset.size or dataset.unpacked) - have) + dataset.unpacked
    free = shutil.disk_usage(root).free
    if needed > free:
        raise LabError(f"{dataset.name} needs {needed / 1e9:.1f} GB in {root}, where {free / 1e9:.1f} GB are free; "
                       "set LABS_DATA to a larger disk, or use --data embedded")


def _download(dataset: Dataset) -> Path:
    """Return the archive, checked against the published checksum or that of the first download."""
    archive, partial = _downloads(dataset) / dataset.filename, _partial(dataset)
    if not archive.exists():  # It is there if an earlier call was killed while it unpacked.
        host = urlsplit(dataset.url).netloc
        terminal.note(f"downloading {dataset.filename} from {host}")
        try:
            _attempt(dataset.url, partial)
        except OSError as error:
            if error.errno:
                raise LabError(f"cannot write in {partial.parent} ({error.strerror}); the partial download is kept"
                               ) from error
            raise LabError(f"cannot download {dataset.filename} from {host} ({_reason(error)}); fetch again later to "
                           "continue where it stopped, or use --data embedded, which needs no network") from error
        partial.rename(archive)
        partial.with_suffix(".etag").unlink(missing_ok=True)
    checksum = dataset.checksum or _record(dataset).get("checksum")
    if checksum and _checksum(archive, checksum.partition(":")[0]) != checksum:
        archive.unlink()
        wrong = ("its checksum is not the published one; fetch it again, or tell your teacher" if dataset.checksum else
                 "its checksum is not that of the first download; if a new version is expected, remove "
                 f"{archive.with_name('record.json')}")
        raise LabError(f"{dataset.filename} is damaged or has changed: {wrong}")
    return archive


def _attempt(url: str, partial: Path) -> None:
    """Download a file completely, in several attempts; each continues where the last one stopped."""
    import requests

    for attempt, pause in enumerate(PAUSES, 1):
        time.sleep(pause)
        try:
            _receive(url, partial)
            break
        except requests.RequestException as error:
            if attempt == len(PAUSES) or not _may_pass(error, partial):
                raise


def _may_pass(error: requests.RequestException, partial: Path) -> bool:
    """Return whether a later attempt may succeed: the server is busy, or the connection broke in the middle."""
    if error.response is None:
        return partial.exists()
    return error.response.status_code in (416, 429) or error.response.status_code >= 500


def _receive(url: str, partial: Path) -> None:
    """Append the rest of a file to its partial download, or replace that if the server has another file by now.

    Raises:
        LabError: The server sends a web page.
        OSError: The connection broke, the server refuses, or the disk is full.
    """
    import requests
    import urllib3
    from tqdm import tqdm

    version = partial.with_suffix(".etag")  # Of the partial file: halves of two versions are never joined.
    have = partial.stat().st_size if partial.exists() else 0
    headers = {"Accept-Encoding": "identity"}  # The file as stored: the checksum refers to it.
    if have and version.exists():
        headers |= {"Range": f"bytes={have}-", "If-Range": version.read_text()}
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
        offered = answer.headers.get("Content-Range", "")
        if answer.status_code == requests.codes.requested_range_not_satisfiable and offered == f"bytes */{have}":
            return  # It is complete; the process was killed before it renamed the file.
        if have and answer.status_code != requests.codes.ok and not offered.startswith(f"bytes {have}-"):
            partial.write_bytes(b"")
            version.unlink(missing_ok=True)
            if answer.ok:
                raise requests.ConnectionError(f"the answer begins at {offered}, not at byte {have}")
        answer.raise_for_status()
        if "text/html" in answer.headers.get("Content-Type", ""):
            raise LabError(f"{urlsplit(answer.url).netloc} sends a web page, not {partial.stem} (a log-in or a "
                           f"proxy?); look at {answer.url}")
        have = have if answer.status_code == requests.codes.partial_content else 0
        length = answer.headers.get("Content-Length")
        # disable=None: no progress bar unless stderr is a terminal; a batch job's log needs none.
        bar = tqdm(total=have + int(length) if length else None, initial=have, unit="B", unit_scale=True,
                   desc=partial.stem, disable=None)
        with bar, open(partial, "ab" if have else "wb") as file:
            if not have:  # The file is empty now: a kill leaves no old bytes beside the new version.
                version.unlink(missing_ok=True)
                tag = answer.headers.get("ETag", "")
                if tag.startswith('"'):  # Other tags are weak: they may stay the same when the bytes change.
                    version.write_text(tag)
            try:
                for chunk in answer.raw.stream(CHUNK, decode_content=False):
                    file.write(chunk)
                    bar.update(len(chunk))
            except urllib3.exceptions.HTTPError as error:
                raise requests.ConnectionError(error) from error
            missing = int(length) - answer.raw.tell() if length else 0
            if missing > 0:
                raise requests.ConnectionError(f"{missing:,} bytes are missing")


def _reason(error: OSError) -> str:
    """Return in one line what went wrong; for "too many retries", the error that caused it."""
    inner = error.args[0] if error.args else None
    return one_line(getattr(inner, "reason", error))


def _checksum(path: Path, algorithm: str) -> str:
    with open(path, "rb") as file:
        return f"{algorithm}:{hashlib.file_digest(file, algorithm).hexdigest()}"


def _install(dataset: Dataset, archive: Path, home: Path) -> None:
    """Unpack into a temporary folder, write record.json, rename; delete the archive when it is unpacked or bad."""
    try:
        with atomic.folder(home) as fresh:
            terminal.note(f"unpacking {archive.name}")
            unpack(archive, fresh, 2 * dataset.images, 2 * dataset.unpacked)
            check_layout(dataset, fresh)
            record = {"url": dataset.url, "digest": folder_digest(fresh),
                      "checksum": dataset.checksum or _checksum(archive, "sha256")}
            atomic.write_json(archive.with_name("record.json"), record)
            os.sync()  # Otherwise a power failure could leave a renamed folder of empty files.
    except LabError:
        archive.unlink()
        raise
    except OSError as error:  # The disk is full: the archive is good, so it is kept.
        raise LabError(f"cannot unpack {archive} ({error.strerror})") from error
    archive.unlink()


def verify_dataset(name: str) -> str:
    """Compare every byte of a data set and of its synthetic version with what was downloaded or generated.

    Args:
        name: A name in the registry.

    Raises:
        LabError: A file differs, or nothing has been downloaded yet.
    """
    dataset, lines = get(name), []
    home, record = paths.data_dir() / dataset.folder, _record(dataset)
    if home.is_dir():
        if not record:
            raise LabError(f"{home} was not downloaded by `labs data fetch`: there is nothing to compare it with")
        if folder_digest(home) != record["digest"]:
            raise LabError(f"{home} is not what was downloaded; remove it and fetch {name} again")
        lines.append(f"{name}: {home} is as downloaded from {record['url']} ({record['checksum']})")
    if (home := synthetic_folder(name)).is_dir():
        if folder_digest(home) != DIGESTS[name]:
            raise LabError(f"{home} is not what the kit generates with its pinned libraries; "
                           "remove it to generate it again")
        lines.append(f"{name}: {home} is as generated (sha256 {DIGESTS[name]})")
    if not lines:
        raise LabError(f"{name} has not been downloaded yet; `labs data fetch {name}` downloads it")
    return "\n".join(lines)


def listing() -> str:
    """Return a table of the data sets and of what has been downloaded or generated."""
    rows = [("name", "images", "classes", "download", "real data", "synthetic data", "licence")]
    for dataset in DATASETS.values():
        size = f"{'' if dataset.size else '~'}{(dataset.size or dataset.unpacked) / 1e6:,.0f} MB"
        synthetic = "generated" if synthetic_folder(dataset.name).is_dir() else "generated on first use"
        counts = f"{dataset.images:,}", f"{dataset.classes}"
        rows.append((dataset.name, *counts, size, _state(dataset), synthetic, dataset.licence))
    return "\n".join([terminal.table(rows, left=True), "", SYNTHETIC])


def _state(dataset: Dataset) -> str:
    if (paths.data_dir() / dataset.folder).is_dir():
        return "fetched"
    partial = _partial(dataset)
    return f"{partial.stat().st_size / 1e6:,.0f} MB so far" if partial.exists() else "not fetched"
