"""Downloads of the real data sets are atomic, whatever the network does and whatever the archive holds."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import multiprocessing
import os
import random
import signal
import tarfile
import threading
import zipfile

import pytest

from labs.datasets import fetch, locate, locks
from labs.datasets.registry import DATASETS, get
from labs.run.errors import LabError
from tests.datasets.server import serving

forked = multiprocessing.get_context("fork")
TOP = "cifar-10-batches-bin"
PICTURES = {f"{TOP}/{name}": random.Random(name).randbytes(150_000) for name in get("cifar10").required}


def tar(files: dict[str, bytes], *odd: tuple[str, bytes, str]) -> bytes:
    """A tar of files, and of odd members: name, type, target."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for name, kind, target in odd:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            archive.addfile(member)
    return file.getvalue()


def cut_between_members() -> bytes:
    """A tar without compression that ends where a further member would begin."""
    whole = gzip.decompress(tar({**PICTURES, f"{TOP}/last": b"x" * 5000}))
    return whole[:tarfile.open(fileobj=io.BytesIO(whole)).getmembers()[-1].offset]


def zipped(files: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return file.getvalue()


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("LABS_DATA", str(tmp_path / "box" / "data"))
    return tmp_path / "box" / "data"


@pytest.fixture
def offer(data, monkeypatch):
    """Serve an archive as a data set: offer(body) is cifar10; other fields of the registry as keywords."""
    monkeypatch.setattr(fetch, "PAUSES", (0, 0, 0, 0))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving() as server:

        def offer(body, name="cifar10", **fields):
            server.body = body
            fields = {"size": len(body), "checksum": f"sha256:{hashlib.sha256(body).hexdigest()}"} | fields
            fields = {"url": server.url, "unpacked": 400_000} | fields
            monkeypatch.setitem(DATASETS, name, dataclasses.replace(get(name), **fields))
            return server

        yield offer


def begin(range_header: str) -> int:
    return int(range_header.removeprefix("bytes=").removesuffix("-"))


def content(home) -> dict[str, bytes]:
    return {f"{TOP}/{path.name}": path.read_bytes() for path in home.iterdir()}


def test_a_set_is_downloaded_checked_and_unpacked_once(offer, data):
    server = offer(tar(PICTURES))
    with pytest.raises(LabError, match="`labs data fetch cifar10` downloads it, --data embedded needs no network"):
        locate("cifar10", "real")
    assert fetch.listing().count("not fetched") == len(DATASETS)
    home = fetch.fetch_dataset("cifar10")
    assert home == data / "cifar10" / TOP == fetch.fetch_dataset("cifar10") == locate("cifar10", "real")
    assert content(home) == PICTURES
    assert server.requests == [None]
    assert fetch.listing().count("not fetched") == len(DATASETS) - 1
    assert {path.name for path in (data / "downloads/cifar10").iterdir()} == {"lock", "lock.holder", "record.json"}


@pytest.mark.parametrize(("name", "body", "file"), [
    ("mnist", b"numbers", "mnist.npz"),
    ("fruits360", zipped({"fruits-360-100x100-main/Training/a/1.jpg": b"1",
                          "fruits-360-100x100-main/Test/a/2.jpg": b"2"}), "Test/a/2.jpg"),
])
def test_a_single_file_and_a_zip(offer, name, body, file):
    offer(body, name)
    assert (fetch.fetch_dataset(name) / file).is_file()


def test_verify_finds_one_changed_byte(offer):
    offer(tar(PICTURES))
    with pytest.raises(LabError, match="cifar10 has not been downloaded yet; `labs data fetch cifar10`"):
        fetch.verify_dataset("cifar10")
    file = fetch.fetch_dataset("cifar10") / "test_batch.bin"
    assert "is as downloaded" in fetch.verify_dataset("cifar10")
    file.write_bytes(b"\1" + file.read_bytes()[1:])
    with pytest.raises(LabError, match="not what was downloaded; remove it and fetch cifar10 again"):
        fetch.verify_dataset("cifar10")


# --- a bad connection ---


def test_a_busy_server_and_a_broken_connection_delay_a_download(offer):
    body = tar(PICTURES)
    server = offer(body)
    server.errors, server.cuts = [503, 429], [len(body) // 2]
    assert content(fetch.fetch_dataset("cifar10")) == PICTURES
    assert server.requests[:3] == [None, None, None]
    assert fetch.CHUNK <= begin(server.requests[3]) <= len(body) // 2


def test_after_four_attempts_it_gives_up_and_the_next_call_continues(offer, data):
    server = offer(tar(PICTURES))
    server.cuts = [100_000, 50_000, 20_000, 20_000]
    with pytest.raises(LabError, match=r"cannot download cifar.*; fetch again later to continue where it stopped"):
        fetch.fetch_dataset("cifar10")
    assert "MB so far" in fetch.listing()
    here = (data / "downloads/cifar10/cifar-10-binary.tar.gz.part").stat().st_size
    assert content(fetch.fetch_dataset("cifar10")) == PICTURES
    assert server.requests[4:] == [f"bytes={here}-"]


def test_halves_of_two_different_files_are_never_joined(offer):
    server = offer(tar(PICTURES), checksum=None, size=None)
    server.cuts = [50_000] * 4
    with pytest.raises(LabError, match="cannot download"):
        fetch.fetch_dataset("cifar10")
    changed = {name: content[::-1] for name, content in PICTURES.items()}
    server.body, server.etag = tar(changed), '"2"'
    assert content(fetch.fetch_dataset("cifar10")) == changed


@pytest.mark.parametrize(("url", "errors", "variables", "says"), [
    (None, [404], {}, "404.*Not Found"),
    ("http://127.0.0.1:1/file", [], {}, "Connection refused.*--data embedded"),
    (None, [], {"HTTP_PROXY": "http://me:secret@127.0.0.1:1", "NO_PROXY": ""}, "Unable to connect to proxy"),
    ("https://127.0.0.1:1/file", [], {"REQUESTS_CA_BUNDLE": "/nowhere.pem"}, r"invalid path: /nowhere\.pem"),
])
def test_what_no_attempt_can_mend_is_named_at_once(offer, monkeypatch, url, errors, variables, says):
    server, attempts, receive = offer(tar(PICTURES), **{"url": url} if url else {}), [], fetch._receive
    server.errors = errors
    monkeypatch.setattr(fetch, "_receive", lambda *args: (attempts.append(args), receive(*args)))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(LabError, match=says) as refused:
        fetch.fetch_dataset("cifar10")
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(attempts) == 1


# --- several processes, and killed ones ---


def test_two_processes_make_one_download(offer):
    server = offer(tar(PICTURES))
    workers = [forked.Process(target=fetch.fetch_dataset, args=("cifar10",)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert server.requests == [None]


def test_a_killed_download_continues(offer, data):
    server = offer(tar(PICTURES))
    server.gate = threading.Event()
    worker = forked.Process(target=fetch.fetch_dataset, args=("cifar10",))
    worker.start()
    part = data / "downloads/cifar10/cifar-10-binary.tar.gz.part"
    while not part.exists() or part.stat().st_size < fetch.CHUNK:
        assert worker.is_alive()
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    server.gate.set()
    server.gate = None
    (data / ".cifar10.killed.part").mkdir()  # As a killed unpacking leaves it.
    assert content(fetch.fetch_dataset("cifar10")) == PICTURES
    assert begin(server.requests[1]) >= fetch.CHUNK
    assert not list(data.glob(".*.part"))


@pytest.mark.parametrize(("shift", "etag"), [(100, '"1"'), (0, 'W/"1"')], ids=["another range", "a weak tag"])
def test_parts_that_may_not_fit_are_never_joined(offer, shift, etag):
    server = offer(tar(PICTURES), checksum=None, size=None)
    server.shift, server.etag, server.cuts = shift, etag, [100_000]
    assert content(fetch.fetch_dataset("cifar10")) == PICTURES
    assert server.requests[-1] is None, "it began again"


def test_a_process_that_waits_says_for_whom(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "PATIENCE", 0.05)
    held, answered, notes = threading.Event(), threading.Event(), []

    def hold():
        with locks.exclusive(tmp_path / "lock", "downloading cifar10"):
            held.set()
            answered.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(30)
    monkeypatch.setattr(locks.terminal, "note", lambda text: (notes.append(text), answered.set()))
    with locks.exclusive(tmp_path / "lock", "downloading cifar10"):
        holder.join()
    assert notes[0].startswith(f"waiting for process {os.getpid()} on ")


# --- full disks, and not the file that was promised ---


def test_a_full_disk_is_noticed_before_the_download(offer):
    server = offer(tar(PICTURES), size=10**16)
    with pytest.raises(LabError, match=r"cifar10 needs 10,?000,?000\.0 GB in .*are free; set LABS_DATA"):
        fetch.fetch_dataset("cifar10")
    assert server.requests == []


def flipped(body: bytes) -> bytes:
    return body[:5000] + bytes([body[5000] ^ 1]) + body[5001:]


def test_a_damaged_file_is_refused_and_removed(offer, data):
    body = tar(PICTURES)
    server = offer(body)
    server.body = flipped(body)
    with pytest.raises(LabError, match="is damaged or has changed: its checksum is not the published one"):
        fetch.fetch_dataset("cifar10")
    assert not (data / "cifar10").exists()
    server.body = body
    assert content(fetch.fetch_dataset("cifar10")) == PICTURES, "the next call starts again"


def test_a_web_page_instead_of_the_file(offer):
    server = offer(b"<!doctype html><title>Please log in</title>")
    server.content_type = "text/html; charset=utf-8"
    with pytest.raises(LabError, match=r"sends a web page, not cifar-10-binary.tar.gz \(a log-in or a proxy\?\)"):
        fetch.fetch_dataset("cifar10")


def test_without_a_published_checksum_that_of_the_first_download_is_required(offer, data):
    server = offer(tar(PICTURES)[:-5000], checksum=None, size=None)
    with pytest.raises(LabError, match="is damaged"):
        fetch.fetch_dataset("cifar10")
    server.body = tar(PICTURES)
    fetch.fetch_dataset("cifar10")
    (data / "cifar10").rename(data / "old")
    server.body = tar({**PICTURES, f"{TOP}/new": b""})
    with pytest.raises(LabError, match=r"not that of the first download; if a new version is expected, remove .*json"):
        fetch.fetch_dataset("cifar10")
    assert not (data / "cifar10").exists()


@pytest.mark.parametrize(("name", "body"), [
    ("cifar10", tar(PICTURES | {"../evil": b"x"})),
    ("cifar10", tar(PICTURES, ("way", tarfile.SYMTYPE, "/etc"))),
    ("cifar10", tar({}, ("way", tarfile.SYMTYPE, ".."), ("way/evil", tarfile.REGTYPE, ""))),
    ("cifar10", tar(PICTURES, ("way", tarfile.LNKTYPE, "/etc/passwd"))),
    ("cifar10", tar(PICTURES, ("tap", tarfile.FIFOTYPE, ""))),
    ("cifar10", tar(PICTURES)[:-5000]),
    ("cifar10", cut_between_members()),
    ("cifar10", tar({"notes.txt": b"hello"})),
    ("fruits360", zipped({"../evil": b"x"})),
    ("fruits360", zipped(PICTURES)[:-5000]),
    ("fruits360", flipped(zipped(PICTURES))),
    ("fruits360", b"hello"),
], ids=["parent", "link", "through a link", "hard link", "device", "truncated", "cut between members", "other files",
        "zip: parent", "zip: truncated", "zip: flipped", "no zip"])
def test_a_damaged_or_malicious_archive_is_refused_and_leaves_nothing(offer, data, name, body):
    offer(body, name, checksum=None, size=None)
    with pytest.raises(LabError) as refused:
        fetch.fetch_dataset(name)
    assert "\n" not in str(refused.value)
    left = {path.relative_to(data.parent).as_posix() for path in data.parent.rglob("*")}
    downloads = f"data/downloads/{name}"
    assert left <= {"data", "data/downloads", downloads, f"{downloads}/lock", f"{downloads}/lock.holder"}


# --- your own data ---


def test_locate_a_folder_of_ones_own(tmp_path):
    inner = tmp_path / "mine" / "256_ObjectCategories"
    (inner / "001.cat").mkdir(parents=True)
    assert locate("caltech256", str(tmp_path / "mine")) == locate("caltech256", str(inner)) == inner
    (tmp_path / "own.npz").touch()
    assert locate("mnist", str(tmp_path / "own.npz")) == tmp_path / "own.npz"
    assert locate("fruits360", str(tmp_path)) == tmp_path, "any tree of a folder per class: its reader checks it"
    with pytest.raises(LabError, match=r"is not CIFAR-10.*no data_batch_1.bin"):
        locate("cifar10", str(tmp_path))
