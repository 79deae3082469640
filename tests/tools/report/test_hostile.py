"""A results folder that others can write into: nothing in it stops a command or reaches a terminal unescaped."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from labs.cli import commands
from labs.course.exercises import listing
from labs.results import records, reference
from labs.run.errors import LabError
from labs.run.text import printable
from labs.tools.report import page
from tests.results.test_records import record
from tests.waiting import ends

HUGE, MISSING = 10**400, object()


def changed(path: str, value: object) -> str:
    """Return a record's text with one field replaced."""
    result = copy.deepcopy(record("bad") | {"tables": {"trials": [{"width": 1}]}})
    *parents, last = path.split(".")
    part = result
    for name in parents:
        part = part[int(name) if isinstance(part, list) else name]
    if value is MISSING:
        del part[last]
    else:
        part[int(last) if isinstance(part, list) else last] = value
    return json.dumps(result)


BAD = {
    "a size of 401 digits": (changed("layout.size", HUGE), "layout.size"),
    "no number of nodes": (changed("layout.nodes", MISSING), "layout: Object missing required field `nodes`"),
    "a bandwidth that is text": (changed("tables.trials.0.busbw", "fast"), "tables[0].busbw: Expected"),
    "a setting with 401 digits inside": (changed("config.batch_size", [HUGE]), "config"),
    "a loss that is a list": (changed("history.0.loss", [1]), "history[0]"),
    "gpus are dicts": (changed("machine.gpus", [{"name": "A100"}]), "machine.gpus[0]"),
    "a surrogate in a key": (changed("config.\ud800", 1), "surrogate"),
    "a lab that leaves its folder": (changed("lab", "../../x"), "lab"),
    "versions is a string": (changed("versions", "2.21"), "versions"),
    "not UTF-8": (json.dumps(record("bad")).encode() + b"\xff", "JSON"),
    "cut off": (json.dumps(record("bad"))[:100], "JSON"),
    "another format": ('{"format": 0}', "not a record of format 1"),
}


def write(root: Path, name: str, content: str | bytes, lab: str = "lab10_caltech") -> Path:
    path = root / lab / name / "record.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("what", BAD)
def test_a_bad_record_is_named_in_one_line_and_left_out(what, tmp_path, capsys):
    content, message = BAD[what]
    write(tmp_path, "good", json.dumps(record("good")))
    path = write(tmp_path, "bad", content)
    assert [each["run"] for each in records.read_all(root=tmp_path)] == ["good"]
    line = capsys.readouterr().err
    assert line.startswith(f"labs: left out: {path}: ")
    assert message in line
    assert line.count("\n") == 1
    assert len(line) < 400
    with pytest.raises(LabError) as raised:  # If it is asked for.
        records.read(path.parent)
    assert "\n" not in str(raised.value)


@pytest.fixture
def special(tmp_path):
    """A results folder with one sound record and everything that is not a regular file."""
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


def test_every_command_reads_regular_files_alone(special, monkeypatch, capsys):
    monkeypatch.setenv("LABS_RESULTS", str(special))
    with ends():
        commands.dispatch(["results", "--csv", str(special / "runs.csv")])
        commands.dispatch(["lint"])
        commands.dispatch(["report", "--output", str(special / "page.html"), "--markdown", str(special / "page.md")])
        capsys.readouterr()
        assert any("q1" in line for line in listing("lab10"))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 5, "each once"
    for name in ("fifo", "device", "socket", "folder"):
        assert f"labs: left out: {special}/lab10_caltech/{name}/record.json: it is not a regular file" in lines
    assert any("endless" in line and "is larger than 64 MiB" in line for line in lines)
    assert (special / "runs.csv").read_text().count("\n") == 2
    assert "1 run" in (special / "page.html").read_text()


def test_figures_that_are_not_numbers_are_read(tmp_path):
    """A run that diverged has a loss of NaN, which Python writes and JSON does not know."""
    diverged = record("nan")
    diverged["history"] = [row | {"loss": float("nan")} for row in diverged["history"]]
    diverged["metrics"] = {"test_loss": float("inf")}
    folder = write(tmp_path, "nan", json.dumps(diverged)).parent
    result = records.read(folder)
    assert result["history"][0]["loss"] != result["history"][0]["loss"]
    assert result["metrics"] == {"test_loss": float("inf")}


NAMES = ["\x1b[31mred", "a\x1b]0;title\x07", "two\nlines", "over\rwritten", "left\u202eright", "nul\0",
         "=cmd|'/c calc'!A1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "<script>alert(1)</script>",
         "![a](http://x)", "*bold*", "`code`", "a|b", "```", "$\\frac$"]
"""What a run may be called in a record that someone else wrote."""


@pytest.fixture
def named(tmp_path, monkeypatch):
    """A results folder whose records have hostile text wherever text may be; one more cannot be read."""
    for number, name in enumerate(NAMES):
        bad = record(name, 1 + number % 2) | {"lab": "lab77_other", "versions": {name: name}, "machine": {"host": name},
                                              "tables": {name: [{name: name, "x": number}]}}
        bad["config"] = {"batch_size": 32, "seed": 1, "model": name, name: name}
        write(tmp_path, str(number), json.dumps(bad))
    write(tmp_path, "\x1b[31munreadable", "{")
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path))
    return tmp_path


def test_nothing_from_a_record_reaches_the_terminal_raw(named, capsys):
    commands.dispatch(["results"])
    printed = capsys.readouterr()
    assert r"\x1b[31mred" in printed.out
    assert r"left\u202eright" in printed.out
    assert r"\x1b[31munreadable" in printed.err
    assert len(printed.out.splitlines()) == len(NAMES) + 2, "a row each, below the heading and its rule"
    commands.dispatch(["lint"])
    commands.dispatch(["report", "--output", str(named / "\x1b[31m.html")])
    later = capsys.readouterr()
    for text in (printed.out, printed.err, later.out, later.err):
        assert all(character.isprintable() or character == "\n" for character in text)


def test_no_plot_warns_of_what_a_record_holds(tmp_path):
    """Its legend has these names, of which one is no formula; the font has no glyph for the others."""
    for number, name in enumerate(("\x1b]0;title\x07", "\x1b[31mred", "$\\frac$")):
        for size in (1, 2):
            bad = record(f"{number}-{size}", size)
            bad["config"]["data"] = name
            write(tmp_path, f"{number}-{size}", json.dumps(bad))
    done = subprocess.run([sys.executable, "-m", "labs", "report"], env={**os.environ, "LABS_RESULTS": str(tmp_path)},
                          capture_output=True, text=True, timeout=120, check=False)
    page_at = f"{tmp_path}/report.html"
    assert (done.returncode, done.stderr, done.stdout) == (0, "", f"{page_at}\nfile://{page_at}\n")


def test_no_cell_of_the_csv_is_a_formula(named, tmp_path):
    commands.dispatch(["results", "--csv", str(tmp_path / "runs.csv")])
    frame = pd.read_csv(tmp_path / "runs.csv", dtype=str, keep_default_na=False)
    texts = frame.drop(columns=["size", "images_per_sec"])
    for cell in (*frame.columns, *texts.to_numpy().ravel()):
        assert not cell.startswith(("=", "+", "-", "@", "\t", "\r")), cell
    assert {name for name in frame["run"] if name.startswith("'")} == {
        "'" + printable(name) for name in NAMES if name[0] in "=+-@\t\r"}
    assert len(frame) == len(NAMES)


def test_numbers_in_the_csv_stay_numbers(tmp_path, monkeypatch):
    for name, steps in (("a", 18750), ("b", None)):
        result = record(name)
        result["config"] |= {"steps_per_epoch": steps} if steps else {}
        result["metrics"] = {"change": -1.5}
        write(tmp_path, name, json.dumps(result))
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path))
    commands.dispatch(["results", "--csv", str(tmp_path / "runs.csv")])
    frame = pd.read_csv(tmp_path / "runs.csv", dtype=str, keep_default_na=False).set_index("run")
    assert frame["steps_per_epoch"].to_dict() == {"a": "18750", "b": ""}
    assert frame["change"].to_dict() == {"a": "-1.5", "b": "-1.5"}
    assert frame["val_accuracy"].to_dict() == {"a": "0.6", "b": "0.6"}


def test_the_markdown_shows_text_as_text(named, tmp_path):
    page.write(named, tmp_path / "page.html", tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert not re.search(r"<(script|b|img)", text)
    assert not re.search(r"(?<!\\)\]\(http", text), "no link but those to the plots"
    assert r"\*bold\*" in text
    assert "\x1b" not in text
    assert r"a\|b" in text
    assert "<script" not in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(("kind", "arguments"), [
    ("device", ["results", "--csv"]), ("pipe", ["report", "--output"]), ("folder", ["report", "--markdown"])])
def test_a_target_that_is_not_a_regular_file_is_refused(kind, arguments, tmp_path, monkeypatch):
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path / "store"))
    write(tmp_path / "store", "good", json.dumps(record("good")))
    target = tmp_path / "target"
    make = {"device": lambda: target.symlink_to("/dev/null"), "pipe": lambda: os.mkfifo(target), "folder": target.mkdir}
    make[kind]()
    before = os.lstat(target)
    message = f"cannot write {target}: it is not a regular file; choose another {arguments[1]}"
    with ends(20), pytest.raises(LabError, match=message):
        commands.dispatch([*arguments, str(target)])
    assert os.lstat(target) == before
    assert {path.name for path in tmp_path.rglob("*")} == {"good", "lab10_caltech", "record.json", "store", "target"}


def test_a_run_that_its_lab_cannot_read_is_named_and_the_others_are_shown(tmp_path, capsys):
    """Such as a record of lab 11 that has no hosts: another version wrote it, or someone by hand."""
    sound = reference.read_all("laptop-cluster", "lab11_multinode")[:2]
    for run in (*sound, record("strange") | {"lab": "lab11_multinode"}):
        write(tmp_path, run["run"], json.dumps(run))
    page.write(tmp_path, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "strange is left out where it does not fit this lab (KeyError" in text
    assert "What each layout trains" in text, "the summary of the others"
    assert capsys.readouterr().err.count("strange") == 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("lab", ["lab05_allreduce", "lab11_multinode"])
def test_every_reader_survives_damage_that_fits_the_schema(lab, tmp_path, monkeypatch, capsys):
    """Real records, each with one field that is missing, empty or not a number."""
    originals = [run for name in reference.names() for run in reference.read_all(name, lab)][::4]
    damage = [{"config": {}}, {"history": []}, {"metrics": {}}, {"tables": {}}, {"versions": {}},
              {"metrics": {"test_accuracy": float("nan")}}, {"machine": {"host": "x"}}]
    runs = originals + [originals[0] | change | {"run": f"mutant-{n}"} for n, change in enumerate(damage)]
    for number, run in enumerate(runs):
        write(tmp_path, str(number), json.dumps(run), lab)
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path))
    for words in (["results"], ["results", "--csv", str(tmp_path / "runs.csv")], ["lint"],
                  ["report", "--output", str(tmp_path / "page.html")], ["exercises", lab]):
        commands.dispatch(words)
    assert "labs: left out: " not in capsys.readouterr().err
    assert (tmp_path / "runs.csv").read_text().count("\n") == len(runs) + 1
    assert f"{lab}: {len(runs)} run" in (tmp_path / "page.html").read_text()


def test_a_record_with_thousands_of_fields_is_read_in_linear_time(tmp_path, monkeypatch, capsys):
    """It took 107 s to read these as pandas copied the names of all columns with each column."""
    for size in (1, 2):
        wide = record(str(size), size)
        wide["config"] |= {f"field{number}": number for number in range(5_000)}
        write(tmp_path, str(size), json.dumps(wide))
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path))
    with ends(40):
        commands.dispatch(["results", "--csv", str(tmp_path / "runs.csv")])
        commands.dispatch(["report", "--output", str(tmp_path / "page.html")])
    assert "2 runs, 5,0" in capsys.readouterr().out
