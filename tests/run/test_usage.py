"""Wrong command lines: one line that names the cause and the cure, a non-zero exit, and nothing written."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib import metadata

import pytest

import labs as kit
from labs.cli import commands
from labs.launch import capacity, local
from labs.run import catalogue, command_line, options, usage
from labs.run.errors import LabError
from labs.run.text import one_line
from tests.setup.clone import PINS

LONG = "n" * 300
WRONG = [  # What is typed behind `labs`, words of the one line.
    ("frob", "no command is called 'frob'"),
    ("rnu lab10", "did you mean run?"),
    ("resluts", "did you mean results?"),
    ("--verison", "no command is called '--verison'"),
    ("''", "an argument is empty in: labs ''"),
    (r"$'\e[31m'", r"'\x1b[31m'"),
    # run
    ("run --workers 2", "name the lab first: labs run LAB --workers 2"),
    ("run ''", "an argument is empty in: labs run ''"),
    ("run lab", "more than one lab begins with 'lab'"),
    ("run lab99", "no lab is called 'lab99'"),
    ("run lab02_horovdo", "did you mean lab02_horovod?"),
    (r"run $'lab\e]0;x\a'", r"'lab\x1b]0;x\x07'"),
    ("run lab10 --workers", "--workers needs a value"),
    ("run lab10 --workers two", "--workers: 'two' is not a whole number from 1"),
    ("run lab10 --workers 0", "--workers: '0' is not a whole number from 1"),
    ("run lab10 --workers -1", "--workers"),
    ("run lab10 --workers 1.5", "'1.5' is not a whole number"),
    ("run lab10 --workers=", "an argument is empty"),
    ("run lab10 --workers \uff12", "'\uff12' has digits other than 0 to 9; write 2"),
    ("run lab10 --epochs=\u0663", "'\u0663' has digits other than 0 to 9; write 3"),
    ("run lab10 --base-lr 0.\u0661", "has digits other than 0 to 9; write 0.1"),
    ("run lab10 --workers 9999", "9999 workers on"),
    ("run lab10 --worker 2", "no option is called '--worker'; did you mean --workers?"),
    ("run lab10 --overs", "did you mean --oversubscribe?"),
    ("run lab10 --no-oversubscribe", "did you mean --oversubscribe?"),
    ("run lab10 --oversubscribe yes", "'yes' belongs to no option"),
    ("run lab10 --preset", "--preset needs a value"),
    ("run lab10 --preset fast", "no preset is called 'fast'; lab10_caltech has: demo, paper"),
    ("run lab10 --prest paper", "did you mean --preset?"),
    ("run lab10 --batchsize 3", "no option is called '--batchsize'; did you mean --batch-size?"),
    ("run lab10 --batchsize=3", "did you mean --batch-size?"),
    ("run lab10 --batch-size 0", "--batch-size 0 is out of range; choose a number from 1 to"),
    ("run lab10 --epochs", "--epochs needs a value"),
    ("run lab10 --epochs x", "--epochs: 'x' is not a whole number"),
    ("run lab10 --epochs 1 2", "'2' belongs to no option"),
    ("run lab10 --no-epochs", "did you mean --epochs?"),
    ("run lab10 --base-lr x", "--base-lr: 'x' is not a number"),
    ("run lab10 --base-lr nan", "--base-lr nan is out of range"),
    ("run lab10 --scaling linaer", "--scaling: 'linaer' is not one of linear, sqrt, none; did you mean linear?"),
    ("run lab10 --augment yes", "'yes' belongs to no option"),
    ("run lab10 --resmue", "did you mean --resume?"),
    ("run lab10 foo", "'foo' belongs to no option"),
    ("run lab10 -x", "no option is called '-x'"),
    ("run lab10 -- --foo", "no option is called '--foo'"),
    (r"run lab10 $'--\e[2J'", r"'--\x1b[2J'"),
    ("run lab10 --data ''", "an argument is empty"),
    ("run lab10 --results ''", "an argument is empty"),
    ("run lab10 --stall-seconds 0", "--stall-seconds 0.0 is out of range"),
    ("run lab10 --name ''", "an argument is empty"),
    ("run lab10 --name=", "an argument is empty"),
    ("run lab10 --name ' '", "--name ' ' is empty"),
    ("run lab10 --name ../../x", "--name '../../x' has a slash"),
    ("run lab10 --name a/b", "--name 'a/b' has a slash"),
    ("run lab10 --name /tmp/x", "--name '/tmp/x' has a slash"),
    ("run lab10 --name .", "--name '.' begins with a dot or a dash"),
    ("run lab10 --name ..", "--name '..' begins with a dot or a dash"),
    ("run lab10 --name=-x", "--name '-x' begins with a dot or a dash"),
    ("run lab10 --name 'x '", "begins or ends with a space"),
    (f"run lab10 --name {LONG}", "is longer than 100 bytes"),
    (f"run lab10 --name {'é' * 51}", "is longer than 100 bytes"),
    (r"run lab10 --name $'a\nb'", r"--name 'a\nb' has a control character"),
    (r"run lab10 --name $'\e[31mred'", r"--name '\x1b[31mred' has a control character"),
    (r"run lab10 --name $'\xff'", r"--name '\udcff' has a control character"),
    # sweep
    ("sweep ''", "an argument is empty"),
    ("sweep lab99", "no lab is called 'lab99'"),
    ("sweep lab10", "lab10_caltech has no sweep"),
    ("sweep lab04 --repeats 0", "--repeats: '0' is not a whole number from 1"),
    ("sweep lab04 --repeats -1", "--repeats"),
    ("sweep lab04 --repeats x", "--repeats: 'x' is not a whole number"),
    ("sweep lab04 --workers 0", "--workers: '0' is not a whole number from 1"),
    ("sweep lab04 --workers 1,", "--workers: '' is not a whole number"),
    ("sweep lab04 --workers ,", "--workers: '' is not a whole number"),
    ("sweep lab04 --only x", "lab04_speedup has no sweep 'x'"),
    ("sweep lab04 --list --sbatch", "not allowed with argument"),
    ("sweep lab04 --cell 9999", "--cell 9999"),
    ("sweep lab04 --cell x", "--cell"),
    ("sweep lab04 --repaets 2", "did you mean --repeats?"),
    ("sweep lab04 --epocsh 2", "did you mean --epochs?"),
    ("sweep lab04 --name x", "--name is for one run"),
    ("sweep lab04 --name ../x", "--name '../x' has a slash"),
    ("sweep lab04 --list --keep-reference ../x", "--keep-reference '../x' has a slash"),
    # the others
    ("list lab10", "'lab10' belongs to no option"),
    ("check --quik", "no option is called '--quik'; did you mean --quick?"),
    ("check --only nosuch", "no check is called 'nosuch'"),
    ("queue --user", "--user needs a value"),
    ("queue --chekc jobs/lab10_caltech.sh", "did you mean --check?"),
    ("queue nosuch", "'nosuch' is not the number of a job"),
    ("data", "required"),
    ("data fetsh mnist", "'fetsh' is not one of list, fetch, verify; did you mean fetch?"),
    ("data fetch", "required"),
    ("data fetch ''", "an argument is empty"),
    ("data fetch imagenet", "imagenet"),
    ("data verify imagenet", "imagenet"),
    ("data list mnist", "'mnist' belongs to no option"),
    ("results --cvs x.csv", "did you mean --csv?"),
    ("results --csv", "--csv needs a value"),
    ("results ''", "an argument is empty"),
    ("report --outptu x.html", "did you mean --output?"),
    ("report --results ''", "an argument is empty"),
    ("lint ''", "an argument is empty"),
    ("lint --nosuch", "no option is called '--nosuch'"),
    ("exercises ''", "an argument is empty"),
    ("exercises lab99", "no lab is called 'lab99'"),
    ("exercises lab04 lab05", "'lab05' belongs to no option"),
    ("notebook lab04", "'lab04' belongs to no option"),
    ("completion", "required"),
    ("completion fish", "'fish' is not one of bash"),
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
    assert done.stderr == "labs: error: no option is called '--batchsize'; did you mean --batch-size?\n"


def test_the_version_names_the_kit_and_what_is_installed():
    done = labs("--version")
    assert done.returncode == 0, done.stderr
    named = dict(line.split() for line in done.stdout.splitlines())
    assert named["labs"] == kit.__version__
    for package in ("tensorflow", "keras", "horovod"):
        assert named[package] == metadata.version(package) == PINS[package]


@pytest.mark.parametrize("arguments", [["--name", "../../x"], ["--name", LONG], ["--batchsize", "3"], ["--name="]])
def test_a_lab_started_as_a_module_refuses_the_same(arguments, tmp_path):
    done = subprocess.run([sys.executable, "-m", "labs.lab02_horovod", *arguments, "--results", str(tmp_path / "r/s")],
                          capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("labs: error: ")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["../x", "", ".lock", "a\0b", "\ud800", "a\u202eb"])
def test_no_notebook_can_name_a_run_outside_of_the_results_folder(name):
    with pytest.raises(LabError, match=r"^--name "):
        options.Options(name=name)


def test_ordinary_names_are_taken():
    for name in ("it", "20261122-131458-w2", "night 1", "b32_lr0.1", "été", "a=b", "n" * 100):
        assert options.Options(name=name).name == name


def test_the_help_of_a_lab_names_the_options_of_the_launch(capsys):
    with pytest.raises(SystemExit):
        command_line.parse(catalogue.load_lab("lab10"), ["--help"], launches=True)
    shown = capsys.readouterr().out
    first = re.findall(r"^    (--\S+) \S+ +\S.*$", shown.partition("--preset demo")[0], re.MULTILINE)
    assert first == ["--workers", "--epochs", "--batch-size", "--data"]
    assert "--oversubscribe" in shown
    for panel in ("experiment options", "run options", "launch options"):
        assert f" {panel} " in shown
    assert "options options" not in shown


def test_a_worker_started_by_hand_points_to_what_starts_workers():
    with pytest.raises(LabError, match=r"^--workers is for `labs run`.* run lab10_caltech --epochs 1 --workers=2$"):
        command_line.parse(catalogue.load_lab("lab10"), ["--epochs", "1", "--workers=2"])


@pytest.mark.parametrize(("words", "workers", "says"), [
    (["lab10"], None, True), (["lab10"], 1, False), (["lab01"], None, False), (["lab09", "--trials", "2"], None, False),
])
def test_a_run_that_leaves_a_core_idle_says_so(words, workers, says, monkeypatch, tmp_path, capsys):
    """Not if the student has chosen, or if the lab would refuse a second worker."""
    monkeypatch.setattr(capacity, "slots", lambda: 2)
    monkeypatch.setattr(capacity, "visible_gpus", lambda: 0)

    def refuse(*_) -> None:
        raise LabError("enough seen")

    monkeypatch.setattr(local, "_launch", refuse)
    with pytest.raises(LabError, match="enough seen"):
        local.run(words[0], [*words[1:], "--results", str(tmp_path)], workers, announce=True)
    assert ("labs: 1 worker; `--workers 2` uses both cores\n" in capsys.readouterr().err) == says


def test_a_message_is_one_printable_line():
    assert one_line("a\nb\x1b[2J\udcff é") == r"a b\x1b[2J\udcff é"


def test_a_prefix_is_suggested_before_a_similar_word():
    assert usage.suggestion("--overs", ["--workers", "--oversubscribe"]) == "; did you mean --oversubscribe?"
    assert usage.suggestion("--zzz", ["--workers"]) == ""
