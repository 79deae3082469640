"""Download one file over HTTP; what has arrived is kept, and the next attempt asks for the rest."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from labs.run.errors import LabError

if TYPE_CHECKING:
    import requests

PAUSES = (1.0, 3.0, 10.0)  # Seconds before the second, third and fourth attempt.
TIMEOUT = (10, 60)  # Seconds to connect; seconds without a byte.
CHUNK = 1 << 16  # Bytes; no more is lost when the process is killed.


def download(url: str, part: Path, size: int | None, limit: int) -> None:
    """Fill the file `part`, from where it stopped, until it is whole and on the disk.

    Args:
        size: Bytes of the whole file, if known.
        limit: Bytes that it must not exceed.

    Raises:
        LabError: No network, a connection that keeps breaking, or not the file that was promised.
    """
    import requests
    import urllib3

    host = urlsplit(url).netloc
    print(f"labs: downloading {part.stem} from {host}", file=sys.stderr, flush=True)
    for attempt, pause in enumerate((*PAUSES, None)):
        try:
            _go_on(url, part, size, limit)
            _stamp(part).unlink(missing_ok=True)
            return
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            offline = attempt == 0 and isinstance(error, requests.ConnectionError)
            if offline or pause is None:
                cause = "cannot be reached: no network?" if offline else f"broke off {attempt + 1} times"
                cure = (
                    "fetch again later to go on where it stopped, or use --data embedded: no network needed"
                )
                raise LabError(f"{host} {cause} ({type(error).__name__}); {cure}") from error
            time.sleep(pause)


def _go_on(url: str, part: Path, size: int | None, limit: int) -> None:
    import requests

    have = part.stat().st_size if part.exists() else 0
    if have and have == size:
        return
    with requests.get(url, headers=_headers(part, have), stream=True, timeout=TIMEOUT) as answer:
        if answer.status_code == requests.codes.requested_range_not_satisfiable:
            if answer.headers.get("Content-Range") == f"bytes */{have}":
                return  # Nothing is left to send: only the rename was missing.
            part.unlink()
            raise requests.RequestException("what is here is longer than the file")
        _check(answer, part.stem)
        begin = have if answer.headers.get("Content-Range", "").startswith(f"bytes {have}-") else 0
        length = answer.headers.get("Content-Length")
        total = begin + int(length) if length else size
        if size and total != size:
            raise LabError(f"{part.stem} has {size:,} bytes, but what {_host(answer)} offers has {total:,}")
        if not begin:
            _stamp(part).write_text(answer.headers.get("ETag", ""))
        _write(answer, part, begin, total, limit)
    if total and part.stat().st_size < total:
        raise requests.ConnectionError("cut off")


def _stamp(part: Path) -> Path:
    return part.with_suffix(".etag")


def _headers(part: Path, have: int) -> dict[str, str]:
    headers = {"Accept-Encoding": "identity"}  # The file as it is stored: its checksum is of that.
    if have:
        headers["Range"] = f"bytes={have}-"
        etag = _stamp(part).read_text() if _stamp(part).exists() else ""
        if etag.startswith('"'):
            headers["If-Range"] = etag  # If the file has changed since, the server sends the whole of it.
    return headers


def _check(answer: requests.Response, filename: str) -> None:
    import requests

    host, code = _host(answer), answer.status_code
    if code >= 500 or code == requests.codes.too_many_requests:
        answer.raise_for_status()  # The server's trouble: tried again.
    if code >= 400:
        raise LabError(
            f"{host} answers {code} {answer.reason} for {filename}: has it moved? Tell your teacher"
        )
    if "text/html" in answer.headers.get("Content-Type", ""):
        raise LabError(
            f"{host} sends a web page, not {filename} (a log-in or a proxy?); look at {answer.url}"
        )


def _host(answer: requests.Response) -> str:
    return urlsplit(answer.url).netloc


def _write(answer: requests.Response, part: Path, begin: int, total: int | None, limit: int) -> None:
    from tqdm import tqdm

    # disable=None: no bar where nobody watches, as in the log of a batch job.
    bar = tqdm(total=total, initial=begin, unit="B", unit_scale=True, desc=part.stem, disable=None)
    with bar, open(part, "ab" if begin else "wb") as file:
        for chunk in answer.raw.stream(CHUNK, decode_content=False):
            if file.tell() + len(chunk) > limit:
                part.unlink()
                raise LabError(f"{part.stem} is longer than {limit:,} bytes: not the published file")
            file.write(chunk)
            bar.update(len(chunk))
        file.flush()
        os.fsync(file.fileno())
