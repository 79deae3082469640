"""Synthetic data: made once, byte for byte the same everywhere, in the layout of the real sets."""

import hashlib
import multiprocessing
import time

import pytest

from labs.datasets import locate
from labs.datasets.registry import DATASETS
from labs.run import atomic

DIGESTS = {
    "mnist": "132867365a661028b4b089f16d3b111eb96915b230e62891e6bf1824ae3f0aac",
    "cifar10": "d5d53cdf2166c5eadd8dc27d49ed4dba655e405406f036da740005db79e8fa46",
    "fruits360": "e18faae804076741d243001b73bc05a01c4fabb7c44e88246bd280f56d01d2a4",
    "caltech256": "8cd9b4fca1fef2e596bfea6b1aab801cdea8a21960b7f8a8dc43f764bcb4fb36",
    "imdb_wiki": "29770fc8f325254fea62878f9c8e63f83e39044ae0e6f1c4beb289fa65dcb6a8",
}
"""SHA-256 of the paths, sizes and contents, with the pinned versions of numpy, Pillow and scikit-learn."""


@pytest.mark.parametrize("name", DATASETS)
def test_it_is_the_same_on_every_machine(name, tmp_path, monkeypatch):
    monkeypatch.setenv("LABS_DATA", str(tmp_path))
    assert locate(name, "embedded") == locate(name, str(locate(name, "embedded")))
    total, folder = hashlib.sha256(), tmp_path / "embedded" / f"{name}-v1"
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        total.update(f"{path.relative_to(folder).as_posix()}\0{path.stat().st_size}\0".encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    assert total.hexdigest() == DIGESTS[name], "other libraries than the pinned ones?"


def start_maker(folder):
    """Start a process that makes folder/home: it notes its start, and continues when the file `go` is there."""
    def make(home):
        with open(folder / "starts", "a") as file:
            file.write("start\n")
        (home / "half").touch()
        while not (folder / "go").exists():
            time.sleep(0.01)
        (home / "whole").touch()

    worker = multiprocessing.get_context("fork").Process(
        target=atomic.make_folder_once, args=(folder / "home", "testing", make), daemon=True)
    worker.start()
    return worker


def test_one_process_makes_it_and_the_others_wait_even_if_an_earlier_one_was_killed(tmp_path):
    killed = start_maker(tmp_path)
    while not list(tmp_path.glob(".home.*.part/half")):
        assert killed.is_alive()
    killed.kill()
    killed.join()
    assert not (tmp_path / "home").exists()
    workers = [start_maker(tmp_path) for _ in range(3)]
    (tmp_path / "go").touch()
    for worker in workers:
        worker.join(30)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert {path.name for path in (tmp_path / "home").iterdir()} == {"half", "whole"}
    assert (tmp_path / "starts").read_text() == "start\nstart\n"
    assert not list(tmp_path.glob(".*.part")), "what the killed one left is removed"
