"""Of all processes that want a run's name one gets it; the others get an error that names the owner."""

import os
import re
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from labs.run import run_lock
from labs.run.errors import LabError
from labs.run.fields import Options
from labs.run.paths import ROOT
from labs.run.run_lock import hold

LAB = "lab00_any"


def test_a_run_has_one_holder_which_the_others_name(tmp_path):
    program = ("import sys\nfrom pathlib import Path\nfrom labs.run.fields import Options\n"
               "from labs.run.run_lock import hold\n"
               f"with hold({LAB!r}, Options('it', Path(sys.argv[1])), 1): pass")
    with hold(LAB, Options("it", tmp_path), 1):
        other = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=False)
    assert (f"run 'it' is locked by process {os.getpid()} on {socket.gethostname()}; choose another --name"
            in other.stderr)
    (tmp_path / LAB / "it/record.json").touch()
    with pytest.raises(LabError, match=f"run 'it' of {LAB} is finished"), hold(LAB, Options("it", tmp_path), 1):
        pass


def test_of_many_that_want_a_name_at_once_one_gets_it(tmp_path):
    program = ("import sys, time\nfrom pathlib import Path\nfrom labs.run.fields import Options\n"
               "from labs.run.run_lock import hold\nprint('ready', flush=True)\nsys.stdin.readline()\n"
               f"with hold({LAB!r}, Options('it', Path(sys.argv[1])), 1):\n    time.sleep(5)")
    many = [subprocess.Popen([sys.executable, "-c", program, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, text=True) for _ in range(8)]
    assert {each.stdout.readline() for each in many} == {"ready\n"}
    for each in many:
        each.stdin.close()
    assert sorted(each.wait() for each in many) == [0] + [1] * 7


def test_a_name_is_free_again_when_its_holder_was_killed(tmp_path):
    program = (
        "from pathlib import Path\nfrom labs.run.run_lock import hold\n"
        "from labs.run.fields import Options\nimport os, sys\n"
        f"with hold({LAB!r}, Options('it', Path(sys.argv[1])), 1):\n    os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", program, tmp_path], env=os.environ | {"PYTHONPATH": str(ROOT)},
                            timeout=60, check=False)
    assert killed.returncode == -9
    torn = tmp_path / LAB / "it/checkpoints/.epoch-00001.npz.abc.part"  # As a killed writer leaves it.
    torn.parent.mkdir()
    torn.write_bytes(b"half")
    with hold(LAB, Options("it", tmp_path), 1) as name:
        holder = (tmp_path / LAB / name / "holder").read_text()
        assert re.fullmatch(rf"process {os.getpid()} on \S+", holder)
        assert not torn.exists()


def saved(name: str, results: Path, when: float) -> Path:
    """Make a run with a checkpoint of this time, and return its folder."""
    path = results / LAB / name / "checkpoints/epoch-00001.npz"
    path.parent.mkdir(parents=True)
    path.touch()
    os.utime(path, (when, when))
    return path.parents[1]


def test_the_run_to_resume_is_the_newest_that_is_neither_finished_nor_busy(tmp_path):
    old, new, _, finished = (saved(name, tmp_path, when) for when, name in enumerate(
        ("old", "new", "busy", "finished")))
    (finished / "record.json").touch()
    with run_lock.hold(LAB, Options("busy", tmp_path, resume=True), 2):
        assert run_lock.resumed(LAB, Options(None, tmp_path, resume=True)).name == new.name
    assert run_lock.resumed(LAB, Options(old.name, tmp_path, resume=True)).name == old.name
    with pytest.raises(LabError, match="; continue with --resume"), hold(LAB, Options("old", tmp_path), 1):
        pass
    with hold(LAB, Options("old", tmp_path, resume=True), 1) as name:
        assert name == "old"
    for workers in (2, 1):  # The first time nothing is saved yet: that is how the run was started.
        with run_lock.hold(LAB, Options("begun", tmp_path, resume=True), workers):
            assert run_lock.started_with(tmp_path / LAB / "begun")["workers"] == 2
        (tmp_path / LAB / "begun/checkpoints").mkdir(exist_ok=True)
        (tmp_path / LAB / "begun/checkpoints/epoch-00001.npz").touch()


def test_runs_of_one_second_get_different_names(tmp_path, monkeypatch):
    monkeypatch.setattr(run_lock.time, "strftime", lambda form: "now")
    with ThreadPoolExecutor(8) as pool:
        made = pool.map(lambda _: run_lock.make_folder(LAB, Options(results=tmp_path), 2), range(8))
        names = {folder.name for folder in made}
    assert names == {"now-w2", *(f"now-w2-{number}" for number in range(2, 9))}
    (tmp_path / "file").touch()
    with pytest.raises(LabError, match=r"cannot write to .*; choose another --results"), \
            hold(LAB, Options("it", tmp_path / "file"), 1):
        pass
