"""Data sets are downloaded whole or not at all, whatever the network does and whatever the archive holds."""

import dataclasses
import hashlib
import http.server
import io
import tarfile
import threading
import zipfile
from functools import partial

import pytest

from labs.datasets import locate, registry
from labs.datasets.registry import DATASETS
from labs.run.errors import LabError

TOP, FRUITS = "cifar-10-batches-bin", "fruits-360-100x100-main"


def tar(*names: str) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(name))
    return content.getvalue()


def zipped(*names: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in names:
            archive.writestr(name, b"")
    return content.getvalue()


SOUND = tar(f"{TOP}/data_batch_1.bin", f"{TOP}/test_batch.bin")


@pytest.fixture
def offer(tmp_path, monkeypatch):
    """Serve a file as a data set, from a real server; None: the server has no such file."""
    monkeypatch.setenv("LABS_DATA", str(tmp_path / "box" / "data"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    served = tmp_path / "served"
    served.mkdir()

    def offer(name, body, checksum=None):
        file = DATASETS[name].filename
        (served / file).unlink(missing_ok=True)
        if body is not None:
            (served / file).write_bytes(body)
        url = f"http://127.0.0.1:{server.server_address[1]}/{file}"
        monkeypatch.setitem(DATASETS, name, dataclasses.replace(DATASETS[name], url=url, checksum=checksum))

    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(served))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield offer
        server.shutdown()


def test_a_set_is_downloaded_checked_and_unpacked_once(offer):
    with pytest.raises(LabError, match="`labs data fetch cifar10` downloads it, --data embedded needs no network"):
        locate("cifar10", "real")
    for name, body, file in (
            ("cifar10", SOUND, "test_batch.bin"), ("mnist", b"numbers", "mnist.npz"),
            ("fruits360", zipped(f"{FRUITS}/Training/a/1.jpg", f"{FRUITS}/Test/a/2.jpg"), "Test/a/2.jpg")):
        offer(name, body, f"sha256:{hashlib.sha256(body).hexdigest()}")
        home = registry.fetch_dataset(name)
        offer(name, None)
        assert home == registry.fetch_dataset(name) == locate(name, "real")
        assert (home / file).is_file()
    assert registry.listing().count("not fetched") == 2


@pytest.mark.parametrize(("name", "body", "checksum"), [
    ("cifar10", SOUND, "sha256:" + "0" * 64), ("cifar10", SOUND[:-50], None), ("cifar10", None, None),
    ("cifar10", tar(f"{TOP}/data_batch_1.bin", f"{TOP}/test_batch.bin", "../evil"), None),
    ("fruits360", zipped("../evil"), None), ("fruits360", b"<!doctype html><title>Please log in</title>", None),
], ids=["checksum", "truncated", "not found", "parent", "zip: parent", "web page"])
def test_what_is_damaged_malicious_or_missing_is_refused_in_one_line_and_leaves_nothing(
        offer, tmp_path, name, body, checksum):
    offer(name, body, checksum)
    with pytest.raises(LabError) as refused:
        registry.fetch_dataset(name)
    assert "\n" not in str(refused.value)
    assert {path.name for path in (tmp_path / "box").rglob("*")} == {"data", f"{name}.lock"}
