"""Download one file over HTTP, with retries; an interrupted download is resumed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from labs.run import atomic, terminal
from labs.run.errors import LabError, quoted
from labs.run.text import one_line

if TYPE_CHECKING:
    import requests
    import urllib3

CERTIFICATES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Environment variables that name a certificate file."""
ATTEMPTS = 4
BACKOFF = 2.0  # Seconds; urllib3 waits 0, 2 and 4 times as long before the second, third and fourth attempt.
TIMEOUT = (10, 60)  # Seconds to connect; seconds without a byte.
CHUNK = 1 << 16  # Bytes; a killed process loses no more than this.


def download_file(url: str, partial: Path, size: int | None, limit: int) -> None:
    """Download into the file `partial`, from where it ends, until it is complete and flushed to the disk.

    Args:
        url: The file's address.
        partial: The partial file; its ETag is kept beside it, so that two versions are never joined.
        size: Bytes of the complete file, if known.
        limit: Largest number of bytes to accept.

    Raises:
        LabError: The server cannot be reached, every attempt failed, or it offers another file than expected.
    """
    import requests
    import urllib3

    host = urlsplit(url).netloc
    _check_certificates()
    terminal.note(f"downloading {partial.stem} from {host}")
    # Retry-After could ask for hours; an error that says to try later is better.
    retries = urllib3.Retry(ATTEMPTS - 1, connect=0, other=0, backoff_factor=BACKOFF,
                            status_forcelist=(429, *range(500, 600)), respect_retry_after_header=False)
    connected = False
    try:
        while file_size(partial) != size:
            with _request(url, partial, retries) as answer:
                connected = True
                try:
                    _receive(answer, partial, size, limit)
                    break
                except urllib3.exceptions.HTTPError as error:
                    left = answer.raw.retries  # Answers that the adapter has retried count, too.
                    retries = left.new(connect=None, other=None).increment("GET", url, error=error)
            retries.sleep()
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        if problem := _network_problem(url, error):
            raise LabError(problem) from error
        offline = not connected and isinstance(error, requests.ConnectionError)
        cause = "cannot be reached: no network?" if offline else f"failed {ATTEMPTS} times"
        cure = "fetch again later to continue where it stopped, or use --data embedded, which needs no network"
        raise LabError(f"{host} {cause} ({type(_reason(error)).__name__}); {cure}") from error
    _etag_file(partial).unlink(missing_ok=True)


def _check_certificates() -> None:
    """Refuse a missing certificate file: the error from `requests` would look like a disk error."""
    for variable in CERTIFICATES:
        path = os.environ.get(variable)
        if path and not os.path.exists(path):
            raise LabError(f"{variable} names {quoted(path)}, which does not exist; unset {variable}, "
                           "or name a certificate file")


def _network_problem(url: str, error: Exception) -> str:
    """Return an error message if certificates or a proxy that a variable names are at fault, else an empty string."""
    import requests

    if isinstance(error, requests.exceptions.SSLError):
        named = [variable for variable in CERTIFICATES if os.environ.get(variable)]
        cure = f"correct or unset {named[0]}" if named else "check the clock, and whether a proxy intercepts it"
        return f"no secure connection to {urlsplit(url).netloc} ({one_line(_reason(error))}); {cure}"
    at_fault = requests.exceptions.ProxyError, requests.exceptions.InvalidProxyURL, requests.exceptions.InvalidSchema
    proxy = requests.utils.select_proxy(url, requests.utils.get_environ_proxies(url))
    if not proxy or not isinstance(error, at_fault):
        return ""
    names = [name for name, value in os.environ.items() if value == proxy and name.lower().endswith("_proxy")]
    # What precedes an @ is a user's name and password.
    return (f"the proxy {quoted(proxy.rpartition('@')[2])} ({', '.join(names)}) does not answer "
            f"({type(_reason(error)).__name__}); correct the variable, or unset it if this network needs no proxy")


def _reason(error: Exception) -> Exception:
    """Return the error behind "too many retries"."""
    inner = error.args[0] if error.args else None
    return getattr(error, "reason", None) or getattr(inner, "reason", None) or error


def file_size(path: Path) -> int:
    """Return a file's size in bytes, 0 if there is none."""
    return path.stat().st_size if path.exists() else 0


def _request(url: str, partial: Path, retries: urllib3.Retry) -> requests.Response:
    """Request the missing part of the file; the adapter retries on server errors."""
    import requests
    from requests.adapters import HTTPAdapter

    with requests.Session() as session:
        for scheme in ("https://", "http://"):
            session.mount(scheme, HTTPAdapter(max_retries=retries))
        return session.get(url, headers=_headers(partial), stream=True, timeout=TIMEOUT)


def _receive(answer: requests.Response, partial: Path, size: int | None, limit: int) -> None:
    """Append an answer to the partial file, or replace that if the server sends the whole file.

    Raises:
        LabError: The server offers another file than expected.
        urllib3.exceptions.HTTPError: The connection broke; a further request may complete the file.
    """
    import requests
    import urllib3

    have = file_size(partial)
    if answer.status_code == requests.codes.requested_range_not_satisfiable:
        if answer.headers.get("Content-Range") == f"bytes */{have}":
            return  # The file is complete; the process was killed before it renamed it.
        partial.unlink()
        raise urllib3.exceptions.ProtocolError("the partial file is longer than the file")
    _check(answer, partial.stem)
    begin = have if answer.headers.get("Content-Range", "").startswith(f"bytes {have}-") else 0
    length = answer.headers.get("Content-Length")
    total = begin + int(length) if length else size
    if size and total != size:
        raise LabError(f"{partial.stem} has {size:,} bytes, but what {_host(answer)} offers has {total:,}")
    if not begin:
        _etag_file(partial).write_text(answer.headers.get("ETag", ""))
    _write(answer, partial, begin, total, limit)
    if total and file_size(partial) < total:
        raise urllib3.exceptions.ProtocolError("cut off")


def _etag_file(partial: Path) -> Path:
    return partial.with_suffix(".etag")


def _headers(partial: Path) -> dict[str, str]:
    headers = {"Accept-Encoding": "identity"}  # The file as stored: the checksum refers to it.
    if have := file_size(partial):
        headers["Range"] = f"bytes={have}-"
        etag = atomic.read_text(_etag_file(partial)) if _etag_file(partial).exists() else ""
        if etag.startswith('"'):
            headers["If-Range"] = etag  # If the file has changed since, the server sends all of it.
    return headers


def _check(answer: requests.Response, filename: str) -> None:
    host, code = _host(answer), answer.status_code
    if code >= 400:
        raise LabError(f"{host} answers {code} {answer.reason} for {filename}: has it moved? Ask your teacher")
    if "text/html" in answer.headers.get("Content-Type", ""):
        raise LabError(f"{host} sends a web page, not {filename} (a log-in or a proxy?); look at {answer.url}")


def _host(answer: requests.Response) -> str:
    return urlsplit(answer.url).netloc


def _write(answer: requests.Response, partial: Path, begin: int, total: int | None, limit: int) -> None:
    from tqdm import tqdm

    # disable=None: no progress bar unless stderr is a terminal; a batch job's log needs none.
    bar = tqdm(total=total, initial=begin, unit="B", unit_scale=True, desc=partial.stem, disable=None)
    with bar, open(partial, "ab" if begin else "wb") as file:
        for chunk in answer.raw.stream(CHUNK, decode_content=False):
            if file.tell() + len(chunk) > limit:
                partial.unlink()
                raise LabError(f"{partial.stem} is longer than {limit:,} bytes: not the published file")
            file.write(chunk)
            bar.update(len(chunk))
        file.flush()
        os.fsync(file.fileno())
