"""Records that cannot be read, or hold unusual figures, and files that a command may not replace."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path

import pandas as pd
import pytest

from labs.cli import commands
from labs.results import records
from labs.run.errors import LabError
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


def test_figures_that_are_not_numbers_are_read(tmp_path):
    """A run that diverged has a loss of NaN, which Python writes and JSON does not know."""
    diverged = record("nan")
    diverged["history"] = [row | {"loss": float("nan")} for row in diverged["history"]]
    diverged["metrics"] = {"test_loss": float("inf")}
    folder = write(tmp_path, "nan", json.dumps(diverged)).parent
    result = records.read(folder)
    assert result["history"][0]["loss"] != result["history"][0]["loss"]
    assert result["metrics"] == {"test_loss": float("inf")}


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


def test_a_page_replaces_no_pipe(tmp_path, monkeypatch):
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path / "store"))
    write(tmp_path / "store", "good", json.dumps(record("good")))
    target = tmp_path / "target"
    os.mkfifo(target)
    with ends(20), pytest.raises(LabError, match="it is not a regular file; choose another --output"):
        commands.dispatch(["report", "--output", str(target)])
    assert target.is_fifo()


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
