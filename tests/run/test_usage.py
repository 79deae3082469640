"""A student's wrong command lines: one line that names the cause, a non-zero exit, and nothing written."""

import os
import shlex
import subprocess
import sys

import pytest

from labs.cli import commands
from labs.run import fields
from labs.run.errors import LabError

WRONG = [  # What is typed after `labs`, and a part of the line.
    ("rnu lab10", "unknown command 'rnu'; did you mean run?"),
    ("run --workers 2 lab10", "name the lab first: labs run LAB --workers 2 lab10"),
    ("run lab99", "unknown lab 'lab99'; there are: lab01_baseline, "),
    ("run lab10 --workers 9999", "9999 workers on"),
    ("run lab10 --batchsize=3", "unrecognized arguments: --batchsize=3; did you mean --batch-size?"),
    ("run lab10 --batch-size 0", "--batch-size 0 is out of range; choose a number from 1 to"),
    ("run lab10 --base-lr nan", "--base-lr nan is out of range"),
    ("run lab10 --epochs x", "--epochs: invalid int value: 'x'"),
    ("run lab10 --results ''", "--results: the path is empty"),
    ("run lab10 --name ../../x", "--name '../../x' is not the name of one folder"),
    ("sweep lab01", "lab01_baseline has no sweep for preset 'demo'; `labs run` runs it once"),
    ("sweep lab04 --only nothing", "has no sweep 'nothing'; there are: weak, strong"),
    ("sweep lab04 --repaets 2", "did you mean --repeats?"),
    ("sweep lab04 --typed 2", "unrecognized arguments: --typed 2; did you mean --threads?"),
    ("sweep lab04 --name x", "--name is for one run"),
    ("data fetch", "name the data set"),
    ("launch 2", "the following arguments are required: SCRIPT"),
    ("launch 2 trian.py", "there is no file 'trian.py' in this folder"),
    ("handin lab04", "export LABS_STUDENT="),
]


@pytest.mark.parametrize(("typed", "cause"), WRONG, ids=[typed for typed, _ in WRONG])
def test_a_wrong_command_line_is_refused_in_one_line(typed, cause, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path / "results"))
    monkeypatch.setattr(sys, "argv", ["labs", *shlex.split(typed)])
    with pytest.raises(SystemExit) as end:
        commands.main()
    assert capfd.readouterr() == ("", "")
    line = str(end.value.code)  # Python prints it on the error stream, and exits with 1.
    assert line.startswith("labs: error: ")
    assert cause in line
    assert line.isprintable()
    assert not list(tmp_path.rglob("*"))


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".", ".lock", "-x", "x ", "a\0b", "\ud800", "a\u202eb", "n" * 101])
def test_no_run_is_named_outside_of_the_results_folder(name):
    assert fields.Options(name="\u00e9t\u00e9 b32_lr0.1-w2").name
    with pytest.raises(LabError, match=r"^--name .* is not the name of one folder"):
        fields.Options(name=name)


def test_a_reader_that_has_seen_enough_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-m", "labs"], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120,
                          check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")
