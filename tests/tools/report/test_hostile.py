"""A results folder that others can write into: nothing in it stops a command or reaches a terminal unescaped."""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import operator
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pandas as pd
import pytest

from labs.cli import commands
from labs.course import plots
from labs.course.exercises import listing
from labs.results import records, reference, schema, speed_tables
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
    "no global batch": (changed("layout.global_batch_size", MISSING), "`global_batch_size`"),
    "a bandwidth that is text": (changed("tables.trials.0.busbw", "fast"), "tables[0].busbw: Expected"),
    "no workers": (changed("layout.size", 0), "layout.size"),
    "a timing of 401 digits": (changed("timings.images_per_sec", HUGE), "timings"),
    "a setting of 401 digits": (changed("config.batch_size", HUGE), "config"),
    "a setting with 401 digits inside": (changed("config.batch_size", [HUGE]), "config"),
    "a metric of 401 digits": (changed("metrics.test_accuracy", HUGE), "metrics"),
    "a loss of 401 digits": (changed("history.0.loss", HUGE), "history[0]"),
    "a loss that is a list": (changed("history.0.loss", [1]), "history[0]"),
    "a table with 401 digits": (changed("tables.trials.0.width", HUGE), "tables[0]"),
    "gpus is a number": (changed("machine.gpus", 7), "machine.gpus"),
    "gpus are dicts": (changed("machine.gpus", [{"name": "A100"}]), "machine.gpus[0]"),
    "oneDNN is a list": (changed("machine.onednn", []), "machine.onednn"),
    "a host that is a list": (changed("machine.host", []), "machine.host"),
    "cores of 401 digits": (changed("machine.cores", HUGE), "machine"),
    "a surrogate in the run's name": (changed("run", "a\ud800"), "surrogate"),
    "a surrogate in a key": (changed("config.\ud800", 1), "surrogate"),
    "an empty run name": (changed("run", ""), "run"),
    "a lab that leaves its folder": (changed("lab", "../../x"), "lab"),
    "versions is a string": (changed("versions", "2.15"), "versions"),
    "a version that is a number": (changed("versions.tensorflow", 2), "versions"),
    "not UTF-8": (json.dumps(record("bad")).encode() + b"\xff", "JSON"),
    "cut off": (json.dumps(record("bad"))[:100], "JSON"),
    "empty": ("", "JSON"),
    "a list": ("[1, 2]", "not a record"),
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
        commands.dispatch(["results"])
        commands.dispatch(["results", "--csv", str(special / "runs.csv")])
        commands.dispatch(["lint"])
        commands.dispatch(["report", "--output", str(special / "page.html"), "--markdown", str(special / "page.md")])
        capsys.readouterr()
        assert any("q1" in line for line in listing("lab10"))
    assert capsys.readouterr().err.count("labs: left out: ") == len(BAD) + 5, "each once"
    assert (special / "runs.csv").read_text().count("\n") == 2
    assert "1 run" in (special / "page.html").read_text()


def test_a_bad_record_that_is_asked_for_is_an_error_of_one_line(tmp_path):
    for what in BAD:
        (tmp_path / "record.json").write_bytes(content if isinstance(content := BAD[what][0], bytes)
                                               else content.encode())
        with pytest.raises(LabError) as raised:
            records.read(tmp_path)
        assert "\n" not in str(raised.value)


def test_figures_that_are_not_numbers_are_read(tmp_path):
    """A run that diverged has a loss of NaN, which Python writes and JSON does not know."""
    diverged = record("nan")
    diverged["history"] = [row | {"loss": float("nan")} for row in diverged["history"]]
    diverged["metrics"] = {"test_loss": float("inf")}
    folder = write(tmp_path, "nan", json.dumps(diverged)).parent
    result = records.read(folder)
    assert result["history"][0]["loss"] != result["history"][0]["loss"]
    assert result["metrics"] == {"test_loss": float("inf")}


NAMES = ["\x1b[31mred", "a\x1b]0;title\x07", "back\x08\x08", "two\nlines", "over\rwritten", "left\u202eright", "nul\0",
         "first\r=second", "=cmd|'/c calc'!A1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "<script>alert(1)</script>",
         "[a](http://x)", "![a](http://x)", "*bold*", "__bold__", "`code`", "a|b", "```", "$\\frac$"]
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
    assert plots.label_of("data", "\x1b[31mred$") == r"\x1b[31mred\$"


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


@pytest.mark.parametrize("kind", ["device", "pipe", "folder"])
@pytest.mark.parametrize("arguments", [["results", "--csv"], ["report", "--output"], ["report", "--markdown"]])
def test_a_target_that_is_not_a_regular_file_is_refused(kind, arguments, tmp_path, monkeypatch):
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path / "store"))
    write(tmp_path / "store", "good", json.dumps(record("good")))
    target = tmp_path / "target"
    make = {"device": lambda: target.symlink_to("/dev/null"), "pipe": lambda: os.mkfifo(target), "folder": target.mkdir}
    make[kind]()
    before = os.lstat(target)
    command, option = arguments
    message = f"cannot write {target}: it is a {kind}, not a regular file; choose another {option}"
    with ends(20), pytest.raises(LabError, match=message):
        commands.dispatch([command, option, str(target)])
    assert os.lstat(target) == before
    assert {path.name for path in tmp_path.rglob("*")} == {"good", "lab10_caltech", "record.json", "store", "target"}


def test_a_run_that_its_lab_cannot_read_is_named_and_the_others_are_shown(tmp_path, capsys):
    """Such as a record of lab 11 that has no hosts: another version wrote it, or someone by hand."""
    sound = [json.loads(path.read_text()) for path in sorted(reference.FOLDER.glob("laptop-cluster/lab11*/*-w*/*"))[:2]]
    for run in (*sound, record("strange") | {"lab": "lab11_multinode"}):
        write(tmp_path, run["run"], json.dumps(run))
    page.write(tmp_path, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "strange is left out where it does not fit this lab (KeyError" in text
    assert "What each layout trains" in text, "the summary of the others"
    assert capsys.readouterr().err.count("strange") == 1


def paths_in(value: object, path: tuple = ()) -> Iterator[tuple]:
    """Yield the paths to all parts of a record, of a list only to its first two."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for name, part in pairs:
        yield (*path, name)
        yield from paths_in(part, (*path, name))


JUNK = (MISSING, "x", r"$\frac$", None, -1, 0, 2**62, 1e308, float("nan"), float("inf"), True, [], [1, "a"], {"a": 1})


def mutants(original: dict, count: int, random: Random) -> Iterator[dict]:
    """Yield copies of a record with one part deleted or replaced."""
    for number, (*parents, last) in enumerate(random.sample(list(paths_in(original)), count)):
        mutant = copy.deepcopy(original)
        part = functools.reduce(operator.getitem, parents, mutant)
        if (junk := random.choice(JUNK)) is MISSING:
            del part[last]
        else:
            part[last] = junk
        yield mutant | {"run": mutant.get("run"), "lab": mutant.get("lab")} if last in ("run", "lab") else (
            mutant | {"run": f"mutant-{number}"})


def fits(run: dict) -> bool:
    """Return whether a record fits the schema."""
    try:
        schema.check(run)
    except LabError:
        return False
    return run.get("format") == records.FORMAT


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("lab", ["lab04_speedup", "lab05_allreduce", "lab07_vit", "lab11_multinode"])
def test_every_reader_survives_any_change_of_a_real_record(lab, tmp_path, monkeypatch, capsys):
    """No traceback; a record that does not fit the schema is named once, and a sound one is read."""
    originals = [json.loads(path.read_text()) for path in sorted(reference.FOLDER.glob(f"*/{lab}/*/record.json"))[::4]]
    random = Random(lab)
    damaged = [mutant for run in originals[:3] for mutant in mutants(run, 8, random)]
    for number, run in enumerate((*originals, *damaged)):
        write(tmp_path, str(number), json.dumps(run), lab)
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path))
    refused = len(damaged) - sum(map(fits, damaged))
    for words in (["results"], ["results", "--csv", str(tmp_path / "runs.csv")], ["lint"],
                  ["report", "--output", str(tmp_path / "page.html")], ["exercises", lab]):
        commands.dispatch(words)
        printed = capsys.readouterr()
        assert printed.err.count("labs: left out: ") == refused, words
    runs = [*originals, *filter(fits, damaged)]
    assert (tmp_path / "runs.csv").read_text().count("\n") == len(runs) + 1
    assert f"{lab}: {len([run for run in runs if run['lab'] == lab])} run" in (tmp_path / "page.html").read_text()
    speed_tables.against_one_worker(max(originals, key=lambda run: run["layout"]["size"]), tmp_path)


def test_a_record_with_thousands_of_fields_is_read_in_linear_time(tmp_path, monkeypatch, capsys):
    """It took 107 s to read these as pandas copied the names of all columns with each column."""
    for size in (1, 2):
        wide = record(str(size), size)
        wide["config"] |= {f"field{number}": number for number in range(5_000)}
        write(tmp_path, str(size), json.dumps(wide))
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path))
    with ends(40):
        commands.dispatch(["results", "--csv", str(tmp_path / "runs.csv")])
        commands.dispatch(["lint"])
        commands.dispatch(["report", "--output", str(tmp_path / "page.html")])
    assert "2 runs, 5,0" in capsys.readouterr().out
