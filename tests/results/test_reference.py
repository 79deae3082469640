"""Reference runs: records kept with the kit, and read back."""

from __future__ import annotations

import json

import pytest

from labs.results import reference
from labs.run.errors import LabError
from tests.results.test_records import record


def test_a_kept_record_reads_as_before(tmp_path):
    assert reference.keep([record("a"), record("b")], "here", tmp_path) == 2
    assert reference.read_all("here", "lab10_caltech", tmp_path) == [record("a"), record("b")]
    assert reference.read_all("here", "lab11_multinode", tmp_path) == []
    with pytest.raises(LabError, match="no reference runs are called 'there'; there are: here"):
        reference.read_all("there", folder=tmp_path)


def test_a_set_is_a_line_per_run_and_a_run_of_the_same_name_replaces_the_kept_one(tmp_path):
    reference.keep([record("b"), record("a")], "here", tmp_path)
    reference.keep([record("a") | {"metrics": {"test_accuracy": 0.5}}], "here", tmp_path)
    lines = (tmp_path / "here" / "lab10_caltech.jsonl").read_text().splitlines()
    assert [json.loads(line)["run"] for line in lines] == ["a", "b"]
    assert next(run["metrics"] for run in reference.read_all("here", folder=tmp_path)) == {"test_accuracy": 0.5}


def test_a_damaged_line_is_named(tmp_path):
    reference.keep([record("a")], "here", tmp_path)
    with (tmp_path / "here" / "lab10_caltech.jsonl").open("a") as file:
        file.write('{"format": 1, "lab"')
    with pytest.raises(LabError, match=r"lab10_caltech\.jsonl, line 2: damaged"):
        reference.read_all("here", folder=tmp_path)


def test_every_committed_reference_run_is_a_record():
    runs = [run for name in reference.names() for run in reference.read_all(name)]
    assert len(runs) == sum(len(path.read_text().splitlines()) for path in reference.FOLDER.glob("*/*.jsonl")) > 500
