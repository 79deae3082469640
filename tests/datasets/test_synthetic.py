"""Synthetic data: made once, byte for byte the same everywhere, in the layout of the real sets."""

from __future__ import annotations

import multiprocessing
import time

import pytest

from labs.datasets import fetch, locate, locks
from labs.datasets.registry import DATASETS
from labs.run.errors import LabError


@pytest.mark.parametrize("name", DATASETS)
def test_it_is_the_same_on_every_machine_and_one_changed_byte_is_found(name, tmp_path, monkeypatch):
    monkeypatch.setenv("LABS_DATA", str(tmp_path))
    home = locate(name, "embedded")
    assert home == locate(name, str(home))
    assert "is as downloaded or generated" in fetch.verify_dataset(name), "other libraries than the pinned ones?"
    file = next(path for path in sorted(home.rglob("*")) if path.is_file() and path.stat().st_size)
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(LabError, match="remove it, then fetch"):
        fetch.verify_dataset(name)


class Maker:
    """Notes each start, and continues when the file `go` is there."""

    def __init__(self, folder):
        self.folder, self.home = folder, folder / "home"

    def make(self, home):
        with open(self.folder / "starts", "a") as file:
            file.write("start\n")
        (home / "half").touch()
        while not (self.folder / "go").exists():
            time.sleep(0.01)
        (home / "whole").touch()

    def start(self):
        worker = multiprocessing.get_context("fork").Process(
            target=locks.make_folder_once, args=(self.home, "testing", self.make), daemon=True)
        worker.start()
        return worker


def test_one_process_makes_it_and_the_others_wait_and_say_so(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(locks, "PATIENCE", 0.05)
    maker = Maker(tmp_path)
    workers = [maker.start() for _ in range(3)]
    said = ""
    while said.count("waiting for another process, which is testing") < 2:
        assert all(worker.is_alive() for worker in workers)
        said += capfd.readouterr().err
    (tmp_path / "go").touch()
    for worker in workers:
        worker.join(30)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert {path.name for path in maker.home.iterdir()} == {"half", "whole"}
    assert (tmp_path / "starts").read_text() == "start\n"


def test_a_killed_maker_leaves_nothing_that_is_taken_for_the_folder(tmp_path):
    maker = Maker(tmp_path)
    worker = maker.start()
    while not list(tmp_path.glob(".home.*.part/half")):
        assert worker.is_alive()
    worker.kill()
    worker.join()
    assert not maker.home.exists()
    (tmp_path / "go").touch()
    assert (locks.make_folder_once(maker.home, "testing", maker.make) / "whole").exists()
    assert not list(tmp_path.glob(".*.part")), "what the killed one left is removed"
