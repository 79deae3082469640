"""Of all processes that want a run's name one gets it; the others get an error that names the owner."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from labs.run.errors import LabError
from labs.run.options import Options
from labs.run.paths import ROOT
from labs.run.run_lock import hold, refuse_held

LAB = "lab00_any"
CONTENDERS = Path(__file__).parent / "programs/contenders.py"


def contend(number: int, results: Path) -> list[dict]:
    done = subprocess.run([sys.executable, CONTENDERS, str(number), results, LAB, "it"], capture_output=True, text=True,
                          env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_of_a_hundred_at_once_one_wins_and_leaves_one_clean_result(tmp_path):
    output = contend(100, tmp_path)
    assert len({each["pid"] for each in output}) == 100
    (winner,) = [each["pid"] for each in output if "won" in each]
    refusals = {each["refused"] for each in output if "refused" in each}
    assert refusals == {f"run 'it' is locked by process {winner} on {socket.gethostname()}; choose another --name"}
    folder = tmp_path / LAB / "it"
    assert json.loads((folder / "record.json").read_text()) == {"by": winner}
    assert sorted(os.listdir(folder)) == [".lock", "holder", "record.json"]

    with pytest.raises(LabError, match=f"run 'it' of {LAB} is finished"), hold(LAB, Options("it", tmp_path), 1):
        pass


def test_a_name_is_free_again_when_its_holder_was_killed(tmp_path):
    program = (
        "from pathlib import Path\nfrom labs.run.run_lock import hold\n"
        "from labs.run.options import Options\nimport os, sys\n"
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


def test_a_held_run_is_refused_before_anything_is_started_for_it(tmp_path):
    folder = tmp_path / LAB / "it"
    refuse_held(folder)
    assert not folder.exists()
    with hold(LAB, Options("it", tmp_path), 1), pytest.raises(LabError, match=r"run 'it' is locked by process \d+ on"):
        refuse_held(folder)
    refuse_held(folder)


def test_an_interrupted_run_is_gone_on_with_when_that_is_asked_for(tmp_path):
    (tmp_path / LAB / "it/checkpoints").mkdir(parents=True)
    (tmp_path / LAB / "it/checkpoints/epoch-00001.npz").touch()
    with pytest.raises(LabError, match="; continue with --resume"), hold(LAB, Options("it", tmp_path), 1):
        pass
    with hold(LAB, Options("it", tmp_path, resume=True), 1) as name:
        assert name == "it"


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / LAB).write_text("a file in the way")
    with pytest.raises(LabError, match=r"cannot write to .*; choose another --results"), \
            hold(LAB, Options("it", tmp_path), 1):
        pass
