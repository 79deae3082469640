"""A results store that others can write into: nothing in it stops a command, or reaches a terminal as it is."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import signal
import socket
from pathlib import Path

import pytest

from labs import cli
from labs.errors import LabError
from labs.exercises import listing
from labs.report import records
from tests.report.test_records import record

HUGE = 10**400


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def changed(path: str, value: object) -> str:
    """Return a record's text with one field replaced."""
    found = copy.deepcopy(record("bad") | {"tables": {"trials": [{"width": 1}]}})
    *parents, last = path.split(".")
    part = found
    for name in parents:
        part = part[int(name) if isinstance(part, list) else name]
    part[int(last) if isinstance(part, list) else last] = value
    return json.dumps(found).replace('"DEEP"', nested(10_000))


BAD = {
    "a size of 401 digits": (changed("layout.size", HUGE), "layout.size"),
    "no workers": (changed("layout.size", 0), "layout.size"),
    "a timing of 401 digits": (changed("timings.images_per_sec", HUGE), "timings.images_per_sec"),
    "a setting of 401 digits": (changed("config.batch_size", HUGE), "config.batch_size"),
    "a setting with 401 digits inside": (changed("config.batch_size", [HUGE]), "config.batch_size"),
    "a metric of 401 digits": (changed("metrics.test_accuracy", HUGE), "metrics.test_accuracy"),
    "a loss of 401 digits": (changed("history.0.loss", HUGE), "history[0]"),
    "a loss that is a list": (changed("history.0.loss", [1]), "history[0]"),
    "a table with 401 digits": (changed("tables.trials.0.width", HUGE), "tables.trials[0]"),
    "gpus is a number": (changed("machine.gpus", 7), "machine.gpus"),
    "gpus are dicts": (changed("machine.gpus", [{"name": "A100"}]), "machine.gpus[0]"),
    "oneDNN is a list": (changed("machine.onednn", []), "machine.onednn"),
    "a host that is a list": (changed("machine.host", []), "machine.host"),
    "cores of 401 digits": (changed("machine.cores", HUGE), "machine.cores"),
    "nested 10,000 deep": (changed("config.model", "DEEP"), "nested"),
    "nested 10,000 deep where nothing is known": (changed("other", "DEEP"), "nested"),
    "nested 900 deep": (changed("config.model", "DEEP").replace(nested(10_000), nested(900)), "config.model"),
    "nothing but nesting": (nested(10_000), "nested"),
    "a surrogate in the run's name": (changed("run", "a\ud800"), "surrogate"),
    "a surrogate in a key": (changed("config.\ud800", 1), "surrogate"),
    "an empty run name": (changed("run", ""), "run"),
    "a lab that leaves its folder": (changed("lab", "../../x"), "lab"),
    "versions is a string": (changed("versions", "2.15"), "versions"),
    "a version that is a number": (changed("versions.tensorflow", 2), "versions.tensorflow"),
    "a setting called lab": (changed("config.lab", []), "config.lab"),
    "a setting called run": (changed("config.run", 1), "config.run"),
    "a setting called size": (changed("config.size", "two"), "config.size"),
    "a metric called started": (changed("metrics.started", 1), "metrics.started"),
    "a table row called run": (changed("tables.trials.0.run", 1), "tables.trials"),
    "not UTF-8": (json.dumps(record("bad")).encode() + b"\xff", "JSON"),
    "cut off": (json.dumps(record("bad"))[:100], "JSON"),
    "empty": ("", "JSON"),
    "a list": ("[1, 2]", "not a record"),
    "another format": ('{"format": 0}', "not a record of format 1"),
}


def write(root: Path, name: str, content: str | bytes) -> Path:
    path = root / "lab10_caltech" / name / "record.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@contextlib.contextmanager
def ends(seconds: int = 60):
    """Fail, instead of hanging, where a command waits for a file that never gives anything."""
    def late(*_):
        raise AssertionError(f"still waiting after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("what", BAD)
def test_a_bad_record_is_named_in_one_line_and_left_out(what, tmp_path, capsys):
    content, told = BAD[what]
    write(tmp_path, "good", json.dumps(record("good")))
    path = write(tmp_path, "bad", content)
    assert [each["run"] for each in records.read_all(root=tmp_path)] == ["good"]
    line = capsys.readouterr().err
    assert line.startswith(f"labs: left out: {path}: ")
    assert told in line
    assert line.count("\n") == 1
    assert len(line) < 400


@pytest.fixture
def special(tmp_path):
    """A store with one sound record and, as others, everything that is no regular file."""
    write(tmp_path, "good", json.dumps(record("good")))
    folder = tmp_path / "lab10_caltech"
    for name in ("fifo", "device", "socket", "folder", "endless"):
        (folder / name).mkdir()
    os.mkfifo(folder / "fifo/record.json")
    (folder / "device/record.json").symlink_to("/dev/zero")
    (folder / "folder/record.json").mkdir()
    (folder / "endless/record.json").touch()
    os.truncate(folder / "endless/record.json", records.LARGEST + 1)
    with socket.socket(socket.AF_UNIX) as there, contextlib.chdir(folder / "socket"):
        there.bind("record.json")
    return tmp_path


def test_records_are_read_from_regular_files_alone(special, capsys):
    with ends(20):
        assert [each["run"] for each in records.read_all(root=special)] == ["good"]
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 5
    for name in ("fifo", "device", "socket", "folder"):
        assert f"labs: left out: {special}/lab10_caltech/{name}/record.json: it is not a regular file" in lines
    assert any("endless" in line and "is larger than 64 MiB" in line for line in lines)


def test_every_command_ends_with_such_a_store(special, monkeypatch, capsys):
    for number, (content, _) in enumerate(BAD.values()):
        write(special, f"bad{number}", content)
    monkeypatch.setenv("LABS_RESULTS", str(special))
    with ends():
        cli.COMMANDS["results"]([])
        cli.COMMANDS["results"](["--csv", str(special / "runs.csv")])
        cli.COMMANDS["lint"]([])
        cli.COMMANDS["report"](["--output", str(special / "page.html"), "--markdown", str(special / "page.md")])
        capsys.readouterr()
        assert any("q1" in line for line in listing("lab10"))
    assert capsys.readouterr().err.count("labs: left out: ") == len(BAD) + 5, "each once"
    assert (special / "runs.csv").read_text().count("\n") == 2
    assert "1 run" in (special / "page.html").read_text()


def test_a_bad_record_that_is_asked_for_is_an_error_of_one_line(tmp_path):
    for what in BAD:
        (tmp_path / "record.json").write_bytes(content if isinstance(content := BAD[what][0], bytes)
                                               else content.encode())
        with pytest.raises(LabError) as told:
            records.read(tmp_path)
        assert "\n" not in str(told.value)


def test_figures_that_are_not_numbers_are_read(tmp_path):
    """A run that diverged has a loss of NaN, which Python writes and JSON does not know."""
    diverged = record("nan")
    diverged["history"] = [row | {"loss": float("nan")} for row in diverged["history"]]
    diverged["metrics"] = {"test_loss": float("inf")}
    folder = write(tmp_path, "nan", json.dumps(diverged)).parent
    found = records.read(folder)
    assert found["history"][0]["loss"] != found["history"][0]["loss"]
    assert found["metrics"] == {"test_loss": float("inf")}


def test_no_lab_has_a_setting_that_would_be_refused():
    import dataclasses

    from labs import command

    for name in command.names():
        fields = {field.name for field in dataclasses.fields(command.find(name).Config)}
        assert not fields & {*records.RESERVED, "size"}, name
