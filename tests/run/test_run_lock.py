"""Of all processes that want a run's name one gets it; the others get an error."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from labs.run import run_lock
from labs.run.errors import LabError
from labs.run.fields import Options
from labs.run.run_lock import hold

LAB = "lab00_any"
HOLD = ("import os, sys, time\nfrom pathlib import Path\nfrom labs.run.fields import Options\n"
        f"from labs.run.run_lock import hold\nwith hold({LAB!r}, Options('it', Path(sys.argv[1])), 1):\n    ")


def start(then: str, results: Path) -> subprocess.Popen:
    """Start a process that holds the run "it" and then does something."""
    return subprocess.Popen([sys.executable, "-c", HOLD + then, results], stderr=subprocess.PIPE, text=True)


def test_a_run_has_one_holder(tmp_path):
    with hold(LAB, Options("it", tmp_path), 1):
        _, errors = start("pass", tmp_path).communicate()
    assert "run 'it' is locked by another process; choose another --name" in errors
    (tmp_path / LAB / "it/record.json").touch()
    with pytest.raises(LabError, match=f"run 'it' of {LAB} is finished"), hold(LAB, Options("it", tmp_path), 1):
        pass


def test_a_name_is_free_again_when_its_holder_was_killed(tmp_path):
    killed = start("os.kill(os.getpid(), 9)", tmp_path)
    killed.communicate()
    assert killed.returncode == -9
    torn = tmp_path / LAB / "it/checkpoints/.epoch-00001.npz.abc.part"  # As a killed writer leaves it.
    torn.parent.mkdir()
    torn.write_bytes(b"half")
    with hold(LAB, Options("it", tmp_path), 1):
        assert not torn.exists()


def save(name: str, results: Path, when: float) -> Path:
    """Make a run with a checkpoint of this time, and return its folder."""
    path = results / LAB / name / "checkpoints/epoch-00001.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, (when, when))
    return path.parents[1]


def test_the_run_to_resume_is_the_newest_that_is_neither_finished_nor_busy(tmp_path):
    _, new, _, finished = (save(name, tmp_path, when) for when, name in enumerate(("old", "new", "busy", "finished")))
    (finished / "record.json").touch()
    with hold(LAB, Options("busy", tmp_path, resume=True), 2):
        assert run_lock.resumed(LAB, Options(None, tmp_path, resume=True)).name == new.name
    with pytest.raises(LabError, match="; continue with --resume"), hold(LAB, Options("old", tmp_path), 1):
        pass
    with hold(LAB, Options("old", tmp_path, resume=True), 1) as name:
        assert name == "old"
    for workers in (2, 1):  # The first time nothing is saved yet: that is how the run was started.
        with hold(LAB, Options("begun", tmp_path, resume=True), workers):
            assert run_lock.started_with(tmp_path / LAB / "begun")["workers"] == 2
        save("begun", tmp_path, 0)


def test_runs_of_one_second_get_different_names(tmp_path, monkeypatch):
    monkeypatch.setattr(run_lock.time, "strftime", lambda form: "now")
    with ThreadPoolExecutor(8) as pool:
        made = pool.map(lambda _: run_lock.make_folder(LAB, Options(results=tmp_path), 2), range(8))
        assert {folder.name for folder in made} == {"now-w2", *(f"now-w2-{number}" for number in range(2, 9))}
    (tmp_path / "file").touch()
    with pytest.raises(LabError, match=r"cannot write to .*; choose another --results"), \
            hold(LAB, Options("it", tmp_path / "file"), 1):
        pass
