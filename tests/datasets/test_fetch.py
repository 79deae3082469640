"""Downloads of the real data sets are atomic, whatever the network does and whatever the archive holds."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import hashlib
import io
import json
import multiprocessing
import os
import random
import signal
import stat
import tarfile
import threading
import zipfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labs.datasets import archives, download, fetch, locks
from labs.datasets.registry import DATASETS, get
from labs.datasets.synthetic import embedded
from labs.run.errors import LabError
from tests.datasets.server import serving

forked = multiprocessing.get_context("fork")
PICTURES = {
    f"cifar-10-batches-bin/{name}": random.Random(name).randbytes(150_000) for name in get("cifar10").required
}


def tar(files: dict[str, bytes], *odd: tarfile.TarInfo) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for member in odd:
            archive.addfile(member)
    return file.getvalue()


def odd(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def zipped(files: dict[str, bytes], link: str = "") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in files.items():
            member = zipfile.ZipInfo(name)
            member.compress_type = zipfile.ZIP_DEFLATED
            if name == link:
                member.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(member, content)
    return file.getvalue()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(download, "BACKOFF", 0)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving() as server:
        yield server


@pytest.fixture
def offer(server, monkeypatch):
    """Serve an archive as a data set: offer(body) is cifar10; other fields of the registry as keywords."""

    def offer(body, name="cifar10", **fields):
        server.body = body
        fields = {"size": len(body), "checksum": f"sha256:{hashlib.sha256(body).hexdigest()}"} | fields
        fields = {"url": server.url, "files": 5, "unpacked": 400_000} | fields
        monkeypatch.setitem(DATASETS, name, dataclasses.replace(get(name), **fields))
        return server

    return offer


def tree(root) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*")}


def content(home) -> dict[str, bytes]:
    return {f"cifar-10-batches-bin/{path.name}": path.read_bytes() for path in home.iterdir()}


# --- a good day ---


def test_a_set_is_downloaded_checked_and_unpacked_once(offer, tmp_path):
    server = offer(tar(PICTURES))
    home = fetch.fetch_dataset("cifar10", tmp_path)
    assert home == tmp_path / "cifar10" / "cifar-10-batches-bin"
    assert content(home) == PICTURES
    assert fetch.fetch_dataset("cifar10", tmp_path) == home
    assert server.requests == [None]
    assert {path.name for path in (tmp_path / "downloads/cifar10").iterdir()} == {
        "lock",
        "lock.holder",
        "record.json",
    }


def test_a_single_file_needs_no_unpacking(offer, tmp_path):
    offer(b"numbers", "mnist", unpacked=10)
    assert (fetch.fetch_dataset("mnist", tmp_path) / "mnist.npz").read_bytes() == b"numbers"


def test_a_zip_is_unpacked_as_well(offer, tmp_path):
    offer(
        zipped(
            {"fruits-360-100x100-main/Training/a/1.jpg": b"1", "fruits-360-100x100-main/Test/a/2.jpg": b"2"}
        ),
        "fruits360",
    )
    assert (fetch.fetch_dataset("fruits360", tmp_path) / "Test" / "a" / "2.jpg").read_bytes() == b"2"


def test_verify_finds_one_changed_byte(offer, tmp_path):
    offer(tar(PICTURES))
    with pytest.raises(LabError, match="cifar10 has not been downloaded yet; `labs data fetch cifar10`"):
        fetch.verify_dataset("cifar10", tmp_path)
    file = fetch.fetch_dataset("cifar10", tmp_path) / "test_batch.bin"
    assert "is as downloaded" in fetch.verify_dataset("cifar10", tmp_path)
    file.write_bytes(b"\1" + file.read_bytes()[1:])
    with pytest.raises(LabError, match="not what was downloaded; remove it and fetch cifar10 again"):
        fetch.verify_dataset("cifar10", tmp_path)


# --- a bad connection ---


def test_a_broken_connection_is_taken_up_where_it_broke(offer, tmp_path):
    body = tar(PICTURES)
    server = offer(body)
    server.cuts = [len(body) // 2]
    assert content(fetch.fetch_dataset("cifar10", tmp_path)) == PICTURES
    assert len(server.requests) == 2
    begin = int(server.requests[1].removeprefix("bytes=").removesuffix("-"))
    assert 0 < begin <= len(body) // 2


def test_after_some_attempts_it_gives_up_and_the_next_call_goes_on(offer, tmp_path):
    server = offer(tar(PICTURES))
    server.cuts = [100_000, 50_000, 20_000, 20_000]
    with pytest.raises(LabError, match=r"failed 4 times .*; fetch again later to continue where it stopped"):
        fetch.fetch_dataset("cifar10", tmp_path)
    here = (tmp_path / "downloads/cifar10/cifar-10-binary.tar.gz.part").stat().st_size
    assert "so far" in fetch._state(get("cifar10"), tmp_path)
    assert content(fetch.fetch_dataset("cifar10", tmp_path)) == PICTURES
    assert here > 100_000
    assert server.requests[4:] == [f"bytes={here}-"]


def test_a_server_without_ranges_sends_it_all_again(offer, tmp_path):
    server = offer(tar(PICTURES))
    server.ranges, server.cuts = False, [100_000]
    assert content(fetch.fetch_dataset("cifar10", tmp_path)) == PICTURES
    assert len(server.requests) == 2


def test_halves_of_two_different_files_are_never_joined(offer, tmp_path):
    server = offer(tar(PICTURES), checksum=None, size=None)
    server.cuts = [50_000] * 4
    with pytest.raises(LabError, match="failed 4 times"):
        fetch.fetch_dataset("cifar10", tmp_path)
    changed = {name: content[::-1] for name, content in PICTURES.items()}
    server.body, server.etag = tar(changed), '"2"'
    assert content(fetch.fetch_dataset("cifar10", tmp_path)) == changed


def test_a_download_that_was_complete_but_for_its_name(offer, tmp_path):
    server = offer(tar(PICTURES), checksum=None, size=None)
    desk = tmp_path / "downloads" / "cifar10"
    desk.mkdir(parents=True)
    (desk / "cifar-10-binary.tar.gz.part").write_bytes(server.body)
    assert content(fetch.fetch_dataset("cifar10", tmp_path)) == PICTURES
    (desk / "cifar-10-binary.tar.gz.part").write_bytes(server.body + b"more")
    (tmp_path / "cifar10").rename(tmp_path / "old")
    assert content(fetch.fetch_dataset("cifar10", tmp_path)) == PICTURES, "too long a file is dropped"


def test_without_a_network_the_synthetic_data_is_named(offer, server, tmp_path):
    offer(tar(PICTURES), url="http://127.0.0.1:1/file")  # No server listens there.
    with pytest.raises(
        LabError, match=r"cannot be reached: no network\? \(NewConnectionError\).*--data embedded"
    ):
        fetch.fetch_dataset("cifar10", tmp_path)


@pytest.mark.parametrize(("name", "value", "says"), [
    ("HTTP_PROXY", "http://me:secret@127.0.0.1:1", r"the proxy '127.0.0.1:1' \(HTTP_PROXY\) does not answer"),
    ("http_proxy", "http://:3128", r"the proxy 'http://:3128' \(http_proxy\) does not answer"),
    ("ALL_PROXY", "socks9://127.0.0.1:1", r"the proxy 'socks9://127.0.0.1:1' \(ALL_PROXY\) does not answer"),
    ("REQUESTS_CA_BUNDLE", "/nowhere.pem", "REQUESTS_CA_BUNDLE names '/nowhere.pem', which does not exist; unset REQ"),
])
def test_a_variable_that_spoils_a_download_is_named_and_its_cure_works(offer, tmp_path, monkeypatch, name, value, says):
    offer(tar(PICTURES))
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.setenv(name, value)
    with pytest.raises(LabError, match=says) as refused:
        fetch.fetch_dataset("cifar10", tmp_path)
    assert "secret" not in str(refused.value)
    monkeypatch.delenv(name)
    assert content(fetch.fetch_dataset("cifar10", tmp_path)) == PICTURES


def test_a_file_of_certificates_that_has_none_is_named(offer, server, tmp_path, monkeypatch):
    (tmp_path / "none.pem").write_text("none")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "none.pem"))
    offer(tar(PICTURES), url=server.url.replace("http:", "https:"))
    with pytest.raises(LabError, match=r"no secure connection to 127.* \(.*\); correct or unset REQUESTS_CA_BUNDLE"):
        fetch.fetch_dataset("cifar10", tmp_path)


def test_a_set_that_has_moved(offer, tmp_path):
    server = offer(b"gone")
    server.status = 404
    with pytest.raises(LabError, match="answers 404 Not Found for cifar-10-binary"):
        fetch.fetch_dataset("cifar10", tmp_path)
    assert len(server.requests) == 1


def test_a_busy_server_is_tried_four_times(offer, tmp_path):
    server = offer(b"busy")
    server.status = 503
    with pytest.raises(LabError, match=r"failed 4 times \(ResponseError\)"):
        fetch.fetch_dataset("cifar10", tmp_path)
    assert len(server.requests) == 4


def test_a_server_that_recovers_in_time(offer, tmp_path):
    server = offer(tar(PICTURES))
    server.errors, server.cuts = [503, 429], [100_000]
    assert content(fetch.fetch_dataset("cifar10", tmp_path)) == PICTURES
    assert server.requests[:3] == [None, None, None]
    assert server.requests[3].startswith("bytes=")


def test_busy_answers_and_cut_connections_share_one_limit(offer, tmp_path):
    server = offer(tar(PICTURES))
    server.errors, server.cuts = [500, 502], [50_000, 20_000, 20_000]
    with pytest.raises(LabError, match="failed 4 times"):
        fetch.fetch_dataset("cifar10", tmp_path)
    assert len(server.requests) == 4


def test_a_network_that_goes_away_is_given_time_to_come_back(offer, tmp_path):
    server = offer(tar(PICTURES))
    server.cuts, server.last = [100_000], True
    with pytest.raises(LabError, match=r"failed 4 times .*; fetch again later to continue where it stopped"):
        fetch.fetch_dataset("cifar10", tmp_path)
    assert (tmp_path / "downloads/cifar10/cifar-10-binary.tar.gz.part").stat().st_size > 0


# --- several processes, and killed ones ---


def test_two_processes_make_one_download(offer, tmp_path):
    server = offer(tar(PICTURES))
    server.gate = threading.Event()
    workers = [forked.Process(target=fetch.fetch_dataset, args=("cifar10", tmp_path)) for _ in range(2)]
    for worker in workers:
        worker.start()
    assert server.at_gate.wait(30)
    server.gate.set()
    for worker in workers:
        worker.join(30)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert server.requests == [None]
    assert content(fetch.fetch_dataset("cifar10", tmp_path)) == PICTURES


def test_a_killed_download_goes_on(offer, tmp_path):
    server = offer(tar(PICTURES))
    server.gate = threading.Event()
    worker = forked.Process(target=fetch.fetch_dataset, args=("cifar10", tmp_path))
    worker.start()
    assert server.at_gate.wait(30)
    part = tmp_path / "downloads/cifar10/cifar-10-binary.tar.gz.part"
    while not part.exists() or part.stat().st_size < download.CHUNK:
        assert worker.is_alive()
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    server.gate.set()
    server.gate = None
    assert content(fetch.fetch_dataset("cifar10", tmp_path)) == PICTURES
    assert int(server.requests[1].removeprefix("bytes=").removesuffix("-")) >= download.CHUNK
    assert not list((tmp_path / "downloads/cifar10").glob("tmp*"))


def test_what_a_killed_unpacking_left_is_cleared_away(offer, tmp_path):
    server = offer(tar(PICTURES))
    desk = tmp_path / "downloads" / "cifar10"
    desk.mkdir(parents=True)
    (desk / "cifar-10-binary.tar.gz").write_bytes(server.body)
    (tmp_path / ".cifar10.killed.part").mkdir()
    assert content(fetch.fetch_dataset("cifar10", tmp_path)) == PICTURES
    assert server.requests == [], "the archive was here and right"
    assert not (tmp_path / ".cifar10.killed.part").exists()


@pytest.mark.slow
def test_who_waits_says_for_whom(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(locks, "PATIENCE", 0.05)
    held, answered = threading.Event(), threading.Event()

    def hold():
        with locks.exclusive(tmp_path / "lock", "downloading cifar10"):
            held.set()
            answered.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(30)
    monkeypatch.setattr("builtins.print", lambda *line, print=print, **how: (print(*line, **how), answered.set()))
    with locks.exclusive(tmp_path / "lock", "downloading cifar10"):
        holder.join()
    assert f"labs: waiting for process {os.getpid()} on " in capsys.readouterr().err


# --- full disks ---


def test_a_full_disk_is_told_before_the_download(offer, tmp_path):
    server = offer(tar(PICTURES), size=10**16)
    with pytest.raises(LabError, match=r"cifar10 needs 10,?000,?000\.0 GB in .*are free; set LABS_DATA"):
        fetch.fetch_dataset("cifar10", tmp_path)
    assert server.requests == []


def test_a_folder_of_someone_else_is_told_before_the_download(offer, tmp_path):
    server = offer(tar(PICTURES))
    (tmp_path / "data").mkdir(mode=0o555)
    says, answered = forked.Pipe()

    def as_student():
        if os.getuid() == 0:
            os.setuid(65534)  # Root may write anywhere.
        try:
            fetch.fetch_dataset("cifar10", tmp_path / "data")
        except LabError as error:
            answered.send(str(error))

    for folder in (tmp_path, *tmp_path.parents):
        if not folder.stat().st_mode & 0o001:  # Those that pytest has made are open to their owner alone.
            folder.chmod(0o755)
    worker = forked.Process(target=as_student)
    worker.start()
    assert says.poll(30)
    assert "Permission denied" in (message := says.recv())
    assert message.endswith("set LABS_DATA to a folder of your own")
    worker.join()
    assert server.requests == []


# --- not the file that was promised ---


def flipped(body: bytes) -> bytes:
    return body[:5000] + bytes([body[5000] ^ 1]) + body[5001:]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (flipped, "is damaged or has changed: its checksum is not the published one"),
        (lambda body: body[:-7], "has .* bytes, but what .* offers has"),
        (lambda body: body + b"x", "has .* bytes, but what .* offers has"),
    ],
)
def test_a_damaged_file_is_refused_and_removed(offer, tmp_path, damage, says):
    body = tar(PICTURES)
    server = offer(body)
    server.body = damage(body)
    with pytest.raises(LabError, match=says):
        fetch.fetch_dataset("cifar10", tmp_path)
    assert not (tmp_path / "cifar10").exists()
    server.body, server.etag = body, '"2"'
    assert content(fetch.fetch_dataset("cifar10", tmp_path)) == PICTURES, "and the next call is not spoilt by it"


def test_a_web_page_instead_of_the_file(offer, tmp_path):
    server = offer(b"<!doctype html><title>Please log in</title>", checksum=None, size=None)
    server.content_type = "text/html; charset=utf-8"
    with pytest.raises(
        LabError, match=r"sends a web page, not cifar-10-binary.tar.gz \(a log-in or a proxy\?\)"
    ):
        fetch.fetch_dataset("cifar10", tmp_path)
    server.content_type = "application/gzip"  # One that lies about it.
    with pytest.raises(LabError, match="is damaged or not an archive"):
        fetch.fetch_dataset("cifar10", tmp_path)
    assert not (tmp_path / "cifar10").exists()


def test_a_file_without_an_end(offer, tmp_path):
    server = offer(bytes(900_000), checksum=None, size=None)
    server.length = False
    with pytest.raises(LabError, match="is longer than 800,000 bytes"):
        fetch.fetch_dataset("cifar10", tmp_path)
    assert not list(tmp_path.rglob("*.part"))


def test_without_a_published_checksum_the_first_one_seen_holds(offer, tmp_path):
    server = offer(tar(PICTURES), checksum=None, size=None)
    fetch.fetch_dataset("cifar10", tmp_path)
    record = tmp_path / "downloads" / "cifar10" / "record.json"
    first = f"sha256:{hashlib.sha256(server.body).hexdigest()}"
    assert json.loads(record.read_text())["checksum"] == first
    (tmp_path / "cifar10").rename(tmp_path / "old")
    server.body = tar({**PICTURES, "cifar-10-batches-bin/new": b""})
    with pytest.raises(
        LabError, match=r"not that of the first download; if a new version is expected, remove .*record\.json"
    ):
        fetch.fetch_dataset("cifar10", tmp_path)
    assert json.loads(record.read_text())["checksum"] == first
    assert not (tmp_path / "cifar10").exists()


def test_the_checksum_of_a_bad_archive_is_not_held_to(offer, tmp_path):
    server = offer(tar(PICTURES)[:-5000], checksum=None, size=None)
    with pytest.raises(LabError, match="is damaged"):
        fetch.fetch_dataset("cifar10", tmp_path)
    server.body = tar(PICTURES)
    assert content(fetch.fetch_dataset("cifar10", tmp_path)) == PICTURES


# --- archives that attack ---

NOTHING = b"\0" * 300_000
RAW = gzip.decompress(tar(PICTURES))
SECOND = (
    tarfile.BLOCKSIZE + -(-150_000 // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
)  # Where the second member begins.
ATTACKS = {
    "parent": (tar(PICTURES | {"../evil": b"x"}), "outside"),
    "parent deep inside": (tar(PICTURES | {"a/../../evil": b"x"}), "outside"),
    "absolute": (tar(PICTURES | {"/tmp/labs-evil": b"x"}), "outside"),
    "symbolic link": (tar(PICTURES, odd("way", tarfile.SYMTYPE, "/etc")), "link"),
    "hard link": (tar(PICTURES, odd("way", tarfile.LNKTYPE, "/etc/passwd")), "link"),
    "through a link": (tar({}, odd("way", tarfile.SYMTYPE, ".."), odd("way/evil", tarfile.REGTYPE)), "link"),
    "device": (tar(PICTURES, odd("tap", tarfile.FIFOTYPE)), "link or a device"),
    "many files": (tar(PICTURES | {f"file{k}": b"" for k in range(20)}), "more than 10 files"),
    "many bytes": (tar(PICTURES | {"zeros": NOTHING, "more": NOTHING}), "800,000 bytes"),
    "truncated": (tar(PICTURES)[:-5000], "damaged"),
    "damaged header": (gzip.compress(RAW[:SECOND] + b"damage" + RAW[SECOND + 6 :]), "damaged"),
    "broken off between files": (gzip.compress(RAW[:SECOND]), "damaged"),
    "other parts": (tar({"notes.txt": b"hello"}), "no data_batch_1.bin"),
    "file as folder": (tar({"a": b"", "a/b": b""}), "damaged"),
}  # fmt: skip
ZIP_ATTACKS = {
    "parent": (zipped({"../evil": b"x"}), "outside"),
    "absolute": (zipped({"/tmp/labs-evil": b"x"}), "outside"),
    "symbolic link": (zipped({"way": b"/etc"}, link="way"), "link"),
    "many files": (zipped({f"file{k}": b"" for k in range(20)}), "more than 10 files"),
    "many bytes": (zipped({"zeros": NOTHING, "more": NOTHING, "still more": NOTHING}), "800,000 bytes"),
    "truncated": (zipped(PICTURES)[:-5000], "damaged"),
    "flipped": (flipped(zipped(PICTURES)), "damaged"),
    "no zip": (b"hello", "damaged or not an archive"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "attack"), [("cifar10", a) for a in ATTACKS] + [("fruits360", a) for a in ZIP_ATTACKS]
)
def test_an_attack_is_refused_and_leaves_nothing(offer, tmp_path, name, attack):
    body, says = (ATTACKS if name == "cifar10" else ZIP_ATTACKS)[attack]
    offer(body, name, checksum=None, size=None)
    root = tmp_path / "box" / "data"
    root.mkdir(parents=True)
    with pytest.raises(LabError, match=says) as caught:
        fetch.fetch_dataset(name, root)
    assert "\n" not in str(caught.value)
    assert tree(tmp_path / "box") <= {
        "data",
        "data/downloads",
        f"data/downloads/{name}",
        *(f"data/downloads/{name}/{left}" for left in ("lock", "lock.holder")),
    }
    assert not os.path.lexists("/tmp/labs-evil")


def test_an_unpacked_file_has_no_privileges(tmp_path):
    member = odd("tool", tarfile.REGTYPE)
    member.mode = 0o6777
    (tmp_path / "set.tar.gz").write_bytes(tar({}, member))
    (tmp_path / "home").mkdir()
    archives.unpack(tmp_path / "set.tar.gz", tmp_path / "home", 10, 1000)
    assert not (tmp_path / "home" / "tool").stat().st_mode & 0o6022


@given(st.text("ab./\\\0~ü: ", max_size=12))
def test_an_admitted_name_stays_inside(name):
    if archives.is_inside(name):
        assert os.path.normpath(f"/box/home/{name}").startswith("/box/home")


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.text("ab./", min_size=1, max_size=8),
            st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE]),
            st.sampled_from(["..", "/", "a", "../b"]),
        ),
        max_size=5,
    )
)
def test_no_tar_reaches_out_of_its_folder(tmp_path_factory, members):
    box = tmp_path_factory.mktemp("box")
    (box / "home").mkdir()
    (box / "evil.tar.gz").write_bytes(tar({}, *(odd(*member) for member in members)))
    before = tree(box)
    with contextlib.suppress(LabError):
        archives.unpack(box / "evil.tar.gz", box / "home", 10, 1000)
    assert {name for name in tree(box) - before if not name.startswith("home/")} == set()
    assert not [path for path in box.rglob("*") if path.is_symlink()]


# --- finding them ---


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("LABS_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def test_locate_what_was_fetched(offer, data):
    offer(tar(PICTURES))
    with pytest.raises(
        LabError, match="`labs data fetch cifar10` downloads it, --data embedded needs no network"
    ):
        fetch.locate("cifar10", "real")
    assert fetch.fetch_dataset("cifar10") == fetch.locate("cifar10", "real")
    (data / "cifar10" / "cifar-10-batches-bin" / "test_batch.bin").unlink()
    with pytest.raises(LabError, match="no test_batch"):
        fetch.locate("cifar10", "real")


def test_locate_a_folder_of_ones_own(tmp_path):
    inner = tmp_path / "mine" / "256_ObjectCategories"
    (inner / "001.cat").mkdir(parents=True)
    assert fetch.locate("caltech256", str(tmp_path / "mine")) == inner
    assert fetch.locate("caltech256", str(inner)) == inner
    (tmp_path / "mnist.npz").touch()
    assert fetch.locate("mnist", str(tmp_path)) == tmp_path
    (tmp_path / "own.npz").touch()
    assert fetch.locate("mnist", str(tmp_path / "own.npz")) == tmp_path / "own.npz"
    assert fetch.locate("fruits360", str(tmp_path)) == tmp_path, "any tree of a folder per class: its reader judges it"
    with pytest.raises(LabError, match=r"is not CIFAR-10.*no data_batch_1.bin"):
        fetch.locate("cifar10", str(tmp_path))
    with pytest.raises(LabError, match="there is no such folder; use embedded, real or a folder"):
        fetch.locate("fruits360", str(tmp_path / "nowhere"))


def test_locate_the_samples(samples):
    assert fetch.locate("caltech256", str(samples / "caltech-sample")).name == "256_ObjectCategories"
    assert fetch.locate("fruits360", str(samples / "fruits-sample")) == samples / "fruits-sample"
    assert fetch.locate("cifar10", str(samples / "cifar-10-batches-bin")) == samples / "cifar-10-batches-bin"


def test_the_list_tells_what_is_here(offer, data):
    offer(tar(PICTURES))
    before = fetch.listing()
    assert all(name in before for name in DATASETS)
    assert before.count("not fetched") == len(DATASETS)
    fetch.fetch_dataset("cifar10")
    embedded.synthetic_folder("mnist").mkdir(parents=True)
    assert fetch.listing().count("not fetched") == len(DATASETS) - 1
    after = fetch.listing()
    assert "generated  " in next(line for line in after.splitlines() if line.startswith("mnist"))
    assert after.count("generated on first use") == len(DATASETS) - 1
    assert after.splitlines()[-1].startswith("Synthetic data: small images that the kit generates itself")
