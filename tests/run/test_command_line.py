"""The command line that is made from a lab's Config; a wrong one ends in one line, and writes nothing."""

import dataclasses
import os
import shlex
import subprocess
import sys

import pytest

from labs.cli import commands
from labs.run import catalogue, command_line
from labs.run.errors import LabError
from labs.run.fields import Options

LAB = catalogue.load_lab("lab10")
WRONG = [  # What is typed after `labs`, and a part of the line.
    ("rnu lab10", "unknown command 'rnu'; did you mean run?"),
    ("run --workers 2 lab10", "name the lab first: labs run LAB --workers 2 lab10"),
    ("run lab99", "unknown lab 'lab99'; there are: lab01_baseline, "),
    ("run lab10 --workers 9999", "9999 workers on"),
    ("run lab10 --batchsize=3", "unrecognized arguments: --batchsize=3; did you mean --batch-size?"),
    ("run lab10 --worker 2", "did you mean --workers?"),
    ("run lab10 --batch-size 0", "--batch-size 0 is out of range; choose a number from 1 to"),
    ("run lab10 --base-lr nan", "--base-lr nan is out of range"),
    ("run lab10 --epochs x", "--epochs: invalid int value: 'x'"),
    ("run lab10 --results ''", "--results: the path is empty"),
    ("run lab10 --name ../../x", "--name '../../x' is not the name of one folder"),
    ("sweep lab01", "lab01_baseline has no sweep for preset 'demo'; `labs run` runs it once"),
    ("sweep lab04 --only nothing", "has no sweep 'nothing'; there are: weak, strong"),
    ("sweep lab04 --repaets 2", "did you mean --repeats?"),
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


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".", ".lock", "-x", "x ", "a\0b", "a\u202eb", "n" * 101])
def test_no_run_is_named_outside_of_the_results_folder(name):
    assert Options(name="\u00e9t\u00e9 b32_lr0.1-w2").name
    with pytest.raises(LabError, match=r"^--name .* is not the name of one folder"):
        Options(name=name)


def test_a_reader_that_has_seen_enough_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-m", "labs"], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_lab_is_found_by_its_number_or_a_unique_prefix():
    found = {name: catalogue.resolve(name) for name in ("lab10", "lab10_c", "lab1", "01", "2")}
    assert found == {"lab10": "lab10_caltech", "lab10_c": "lab10_caltech", "lab1": "lab01_baseline",
                     "01": "lab01_baseline", "2": "lab02_horovod"}


def test_a_preset_is_where_the_defaults_come_from():
    demo, options = command_line.parse(LAB, [])
    assert (demo, options) == (LAB.presets["demo"], Options())
    paper, _ = command_line.parse(LAB, ["--batch-size", "7", "--preset", "paper"])
    assert paper == dataclasses.replace(LAB.presets["paper"], batch_size=7)


@pytest.mark.slow
def test_commands_that_only_print_load_no_tensorflow():
    program = "import sys; sys.argv = ['labs', *{!r}]\nfrom labs import cli\n" \
              "try: cli.main()\nexcept SystemExit: pass\n" \
              "assert not {{'tensorflow', 'horovod', 'pandas', 'matplotlib'}} & set(sys.modules)"
    for arguments in ([], ["--help"], ["run", "lab10", "--help"], ["data", "list"],
                      ["sweep", "lab04", "--list"], ["check", "--only", "python", "--only", "packages"]):
        done = subprocess.run([sys.executable, "-c", program.format(arguments)], capture_output=True, text=True,
                              check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout


def test_a_config_survives_as_a_command_line():
    config = dataclasses.replace(LAB.presets["demo"], epochs=3, augment=False, data="a b'c", warmup_epochs=0.5)
    assert command_line.parse(LAB, command_line.to_argv(config))[0] == config
    assert command_line.to_argv(LAB.presets["demo"]) == []


def test_the_help_of_a_lab_explains_all_options_and_has_the_defaults_of_the_preset(capsys):
    with pytest.raises(SystemExit):
        command_line.parse(LAB, ["--help", "--preset", "paper"])
    text = " ".join(capsys.readouterr().out.split())
    for line in ("--workers N", "experiment options: --preset {demo,paper}", "run options: --name",
                 "--batch-size INT Images per worker and step. (default: 32)", "--augment, --no-augment"):
        assert line in text
