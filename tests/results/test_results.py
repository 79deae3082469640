"""`labs results`: which lab is meant, what is said where there is nothing, and how figures are shown."""

from __future__ import annotations

import json

import pytest

from labs.cli import commands
from labs.results import listing, records
from labs.run.errors import LabError
from tests.results.test_records import record


@pytest.fixture
def root(tmp_path, monkeypatch):
    for lab, run in (("lab10_caltech", "a"), ("lab11_multinode", "b"), ("lab77_other", "c")):
        (tmp_path / lab / run).mkdir(parents=True)
        (tmp_path / lab / run / "record.json").write_text(json.dumps(record(run) | {"lab": lab}))
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(("name", "run"), [("lab10", "a"), ("lab11_m", "b"), ("lab11_multinode", "b"),
                                           ("lab77_other", "c")])
def test_a_lab_may_be_named_by_its_beginning(name, run, root, capsys):
    commands.dispatch(["results", name])
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()[2:]] == [run]
    commands.dispatch(["results", name, "--csv", str(root / "runs.csv")])
    assert capsys.readouterr().out == f"{root}/runs.csv: 1 run, {len(listing.load(name, root).columns)} columns\n"


@pytest.mark.parametrize(("name", "message"), [
    ("lab02", "no runs of lab02_horovod yet; `labs run lab02_horovod` makes one"),
    ("nosuch", "no lab is called 'nosuch'; there are: lab01_baseline, "),
    ("..", "no lab is called '..'; there are: lab01_baseline, "),
])
def test_what_is_missing_is_said(name, message, root):
    for more in ([], ["--csv", str(root / "runs.csv")]):
        with pytest.raises(LabError) as problem:
            commands.dispatch(["results", name, *more])
        assert str(problem.value).startswith(message)
    assert not (root / "runs.csv").exists()


def test_an_empty_store_and_one_that_cannot_be_read_are_two_things(tmp_path):
    for root in (tmp_path / "none", tmp_path):
        with pytest.raises(LabError, match="the results folder is empty; `labs run lab10_caltech"):
            listing.load(None, root)
    (tmp_path / "lab10_caltech/a").mkdir(parents=True)
    (tmp_path / "lab10_caltech/a/record.json").write_text("{")
    for lab in (None, "lab10"):
        with pytest.raises(LabError, match=r"none of the records in .* can be read"):
            listing.load(lab, tmp_path)


def test_figures_have_four_digits_and_what_is_missing_is_blank(tmp_path):
    for run, throughput in (("a", 1586.375971), ("b", None)):
        (tmp_path / "lab10_caltech" / run).mkdir(parents=True)
        result = record(run)
        result["timings"] |= {"images_per_sec": throughput, "seconds_per_epoch": 12.34567}
        result["metrics"] = {"test_accuracy": 0.98765} if throughput else {}
        result["config"] = {"batch_size": 32} if throughput else {}
        (tmp_path / "lab10_caltech" / run / "record.json").write_text(json.dumps(result))
    heading, _, first, second = listing.table(listing.load(None, tmp_path)).splitlines()
    assert heading.split("  ")[-1] == "test accuracy"
    assert "validation accuracy" in heading
    assert first.split() == ["lab10_caltech", "a", "2", "1", "32", "64", "1586", "12.35", "0.6", "0.9877"]
    assert second.split() == ["lab10_caltech", "b", "2", "1", "64", "12.35", "0.6"]
    assert len({len(line) for line in (heading, first, second)}) == 1


@pytest.mark.parametrize(("value", "shown"), [
    (1586.375971, "1586"), (12345.678, "12346"), (0.0001234567, "0.0001235"), (18750.0, "18750"), (999.96, "1000"),
    (float("nan"), ""), (None, ""), (float("inf"), "inf"), (True, "True"), ("a\x1bb", r"a\x1bb"),
    (2**63 - 1, str(2**63 - 1)),
])
def test_a_cell(value, shown):
    assert listing.cell(value) == shown


def test_the_store_of_the_tests_is_read_by_its_reader(root):
    assert len(records.read_all(root=root)) == 3
