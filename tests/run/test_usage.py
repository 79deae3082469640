"""Wrong command lines: one line that names the cause and the cure, a non-zero exit, and nothing written."""

from __future__ import annotations

import shlex
import subprocess
import sys
from importlib import metadata

import pytest

import labs as kit
from labs.cli import commands
from labs.launch import local, mpirun
from labs.run import catalogue, command_line, options
from labs.run.errors import LabError
from tests.setup.clone import PINS

WRONG = [  # What is typed behind `labs`, words of the one line.
    ("rnu lab10", "unknown command 'rnu'; did you mean run?"),
    ("''", "an argument is empty in: labs ''"),
    (r"$'\e[31m'", r"'\x1b[31m'"),
    ("run --workers 2", "name the lab first: labs run LAB --workers 2"),
    ("run lab", "more than one lab begins with 'lab'"),
    ("run lab99", "unknown lab 'lab99'"),
    ("run lab10 --workers two", "--workers: 'two' is not a whole number from 1"),
    ("run lab10 --workers 9999", "9999 workers on"),
    ("run lab10 --overs", "did you mean --oversubscribe?"),
    ("run lab10 --preset fast", "unknown preset 'fast'; lab10_caltech has: demo, paper"),
    ("run lab10 --batchsize=3", "unknown option '--batchsize'; did you mean --batch-size?"),
    ("run lab10 --batch-size 0", "--batch-size 0 is out of range; choose a number from 1 to"),
    ("run lab10 --epochs", "--epochs needs a value"),
    ("run lab10 --epochs x", "--epochs: 'x' is not a whole number"),
    ("run lab10 --base-lr x", "--base-lr: 'x' is not a number"),
    ("run lab10 --base-lr nan", "--base-lr nan is out of range"),
    ("run lab10 --scaling linaer", "--scaling: 'linaer' is not one of linear, sqrt, none; did you mean linear?"),
    ("run lab10 --augment yes", "unexpected argument 'yes'"),
    ("run lab10 --results ''", "an argument is empty"),
    ("run lab10 --name=", "an argument is empty"),
    ("run lab10 --name ../../x", "--name '../../x' is not the name of one folder"),
    (r"run lab10 --name $'\e[31mred'", r"--name '\x1b[31mred' is not the name"),
    ("run lab10 --results ~nosuchuser/x", "this machine has no such home folder"),
    ("sweep lab01", "lab01_baseline has no sweep"),
    ("sweep lab04 --workers 1,", "--workers: '' is not a whole number"),
    ("sweep lab04 --list --sbatch", "not allowed with argument"),
    ("sweep lab04 --cell 9999", "--cell 9999"),
    ("sweep lab04 --repaets 2", "did you mean --repeats?"),
    ("sweep lab04 --epocsh 2", "did you mean --epochs?"),
    ("sweep lab04 --name x", "--name is for one run"),
    ("check --jsom", "unknown option '--jsom'; did you mean --json?"),
    ("queue nosuch", "'nosuch' is not a job number"),
    ("data", "required"),
    ("data fetsh mnist", "'fetsh' is not one of list, fetch, verify; did you mean fetch?"),
    ("results --csv", "--csv needs a value"),
    ("handin lab04 lab05", "unexpected argument 'lab05'"),
]


def words(typed: str) -> list[str]:
    """Return what bash makes of a command line."""
    output = subprocess.run(["bash", "-c", f"printf '%s\\0' {typed}"], capture_output=True, check=True).stdout
    return [word.decode(errors="surrogateescape") for word in output.split(b"\0")[:-1]]


@pytest.fixture
def refused(tmp_path, monkeypatch, capfd):
    """Run the command `labs`, hold it to be refused in one line, and return the line."""

    def run(*arguments: str) -> str:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("LABS_RESULTS", str(tmp_path / "results"))
        monkeypatch.setattr(sys, "argv", ["labs", *arguments])
        with pytest.raises(SystemExit) as end:
            commands.main()
        out, line = capfd.readouterr()
        assert (out, line) == ("", "")
        assert isinstance(end.value.code, str)  # Python prints it on the error stream, and ends with 1.
        assert not list(tmp_path.rglob("*"))
        return end.value.code

    return run


@pytest.mark.parametrize(("typed", "cause"), WRONG, ids=[shlex.quote(typed)[:60] for typed, _ in WRONG])
def test_a_wrong_command_line_is_refused_in_one_line(typed, cause, refused):
    line = refused(*words(typed))
    assert line.startswith("labs: error: ")
    assert cause in line
    assert line.isprintable()


def labs(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "labs", *arguments], capture_output=True, text=True, timeout=60,
                          check=False)


def test_the_shell_sees_the_line_and_a_non_zero_exit():
    done = labs("run", "lab10", "--batchsize", "3")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "labs: error: unknown option '--batchsize'; did you mean --batch-size?\n"


def test_the_version_names_the_kit_and_what_is_installed():
    done = labs("--version")
    assert done.returncode == 0, done.stderr
    named = dict(line.split() for line in done.stdout.splitlines())
    assert named["labs"] == kit.__version__
    for package in ("tensorflow", "keras", "horovod"):
        assert named[package] == metadata.version(package) == PINS[package]


def test_a_lab_started_as_a_module_refuses_the_same(tmp_path):
    done = subprocess.run([sys.executable, "-m", "labs.lab02_horovod", "--name", "../../x", "--results",
                           str(tmp_path / "r/s")], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("labs: error: ")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".", ".lock", "-x", "x ", "a\0b", "\ud800", "a\u202eb", "n" * 101])
def test_no_run_is_named_outside_of_the_results_folder(name):
    with pytest.raises(LabError, match=r"^--name .* is not the name of one folder"):
        options.Options(name=name)


def test_ordinary_names_are_taken():
    for name in ("it", "x", "20261122-131458-w2", "night 1", "b32_lr0.1", "été", "n" * 100):
        assert options.Options(name=name).name == name


def test_the_help_of_a_lab_explains_all_options(capsys):
    with pytest.raises(SystemExit):
        command_line.parse(catalogue.load_lab("lab10"), ["--help", "--preset", "paper"], launches=True)
    shown = " ".join(capsys.readouterr().out.split())
    for line in ("launch options: --workers N", "experiment options: --preset {demo,paper}", "run options: --name",
                 "--batch-size INT Images per worker and step. (default: 32)", "--augment, --no-augment"):
        assert line in shown


def test_a_worker_started_by_hand_points_to_what_starts_workers():
    with pytest.raises(LabError, match=r"^--workers is for `labs run`.* run lab10_caltech --epochs 1 --workers=2$"):
        command_line.parse(catalogue.load_lab("lab10"), ["--epochs", "1", "--workers=2"])


@pytest.mark.parametrize(("words", "workers", "says"), [
    (["lab10"], None, True), (["lab10"], 1, False), (["lab01"], None, False), (["lab09", "--trials", "2"], None, False),
])
def test_a_run_that_leaves_a_core_idle_says_so(words, workers, says, monkeypatch, tmp_path, capsys):
    """Not if the student has chosen, or if the lab would refuse a second worker."""
    monkeypatch.setattr(mpirun, "slots", lambda: 2)
    monkeypatch.setattr(mpirun, "visible_gpus", lambda: 0)

    def refuse(*_) -> None:
        raise LabError("enough seen")

    monkeypatch.setattr(local, "_launch", refuse)
    with pytest.raises(LabError, match="enough seen"):
        local.run(words[0], [*words[1:], "--results", str(tmp_path)], workers, announce=True)
    assert ("labs: 1 worker; `--workers 2` uses all 2 cores\n" in capsys.readouterr().err) == says
