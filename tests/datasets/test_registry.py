"""Data sets are downloaded whole or not at all, whatever the network does and whatever the archive holds."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from labs.datasets import locate, registry
from labs.datasets.registry import DATASETS
from labs.run.errors import LabError
from labs.run.paths import ROOT

TOP = "cifar-10-batches-bin"
FILES = {f"{TOP}/{name}": name.encode() * 99 for name in DATASETS["cifar10"].required}


def tar(files: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, body in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return content.getvalue()


def zipped(files: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, body in files.items():
            archive.writestr(name, body)
    return content.getvalue()


@pytest.fixture
def offer(tmp_path, monkeypatch):
    """Serve a body as a data set, from a real server: offer(body, missing=9) announces 9 bytes more than it sends."""
    monkeypatch.setenv("LABS_DATA", str(tmp_path / "box" / "data"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    served = {"requests": 0}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            served["requests"] += 1
            self.send_response(served["status"])
            self.send_header("Content-Length", str(len(served["body"]) + served["missing"]))
            self.end_headers()
            self.wfile.write(served["body"])

        def log_message(self, *_):
            pass

    def offer(body, name="cifar10", status=200, missing=0, checksum="sha256:{}"):
        served.update(body=body, status=status, missing=missing)
        checksum = checksum and checksum.format(hashlib.sha256(body).hexdigest())
        url = f"http://127.0.0.1:{server.server_address[1]}/{DATASETS[name].filename}"
        monkeypatch.setitem(DATASETS, name, dataclasses.replace(DATASETS[name], url=url, checksum=checksum))
        return served

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield offer
        server.shutdown()


def test_a_set_is_downloaded_checked_and_unpacked_once(offer):
    served = offer(tar(FILES))
    with pytest.raises(LabError, match="`labs data fetch cifar10` downloads it, --data embedded needs no network"):
        locate("cifar10", "real")
    home = registry.fetch_dataset("cifar10")
    assert home == registry.fetch_dataset("cifar10") == locate("cifar10", "real")
    assert {f"{TOP}/{path.name}": path.read_bytes() for path in home.iterdir()} == FILES
    assert served["requests"] == 1
    assert registry.listing().count("not fetched") == len(DATASETS) - 1


@pytest.mark.parametrize(("name", "body", "file"), [
    ("mnist", b"numbers", "mnist.npz"),
    ("fruits360", zipped({"fruits-360-100x100-main/Training/a/1.jpg": b"1",
                          "fruits-360-100x100-main/Test/a/2.jpg": b"2"}), "Test/a/2.jpg"),
])
def test_a_single_file_and_a_zip(offer, name, body, file):
    offer(body, name)
    assert (registry.fetch_dataset(name) / file).is_file()


@pytest.mark.parametrize(("name", "body", "how"), [
    ("cifar10", tar(FILES), {"checksum": "sha256:" + "0" * 64}),
    ("cifar10", tar(FILES), {"missing": 9, "checksum": None}),
    ("cifar10", b"", {"status": 404}),
    ("cifar10", tar(FILES | {"../evil": b"x"}), {}),
    ("cifar10", tar({"notes.txt": b"hello"}), {}),
    ("fruits360", zipped({"../evil": b"x"}), {}),
    ("fruits360", b"<!doctype html><title>Please log in</title>", {"checksum": None}),
], ids=["checksum", "broken connection", "not found", "parent", "other files", "zip: parent",
        "web page"])
def test_what_is_damaged_malicious_or_missing_is_refused_in_one_line_and_leaves_nothing(offer, tmp_path, name, body,
                                                                                       how):
    offer(body, name, **how)
    with pytest.raises(LabError) as refused:
        registry.fetch_dataset(name)
    assert "\n" not in str(refused.value)
    assert {path.name for path in (tmp_path / "box").rglob("*")} == {"data", f"{name}.lock"}


def test_every_set_is_documented():
    text = (ROOT / "data" / "README.md").read_text()
    for name, dataset in DATASETS.items():
        assert all(part in text for part in (f"`{name}`", dataset.licence, dataset.url))
