"""`labs results`: which lab is meant, what is said where there is nothing, and how figures are shown."""

from __future__ import annotations

import pytest

from labs.cli import commands
from labs.results import listing
from labs.run.errors import LabError
from tests.results.test_records import record, write


@pytest.fixture
def root(tmp_path, monkeypatch):
    write(tmp_path, record("a"), *(record(run) | {"lab": lab} for lab, run in (("lab11_multinode", "b"),
                                                                               ("lab77_other", "c"))))
    monkeypatch.setenv("LABS_RESULTS", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(("name", "run"), [("lab10", "a"), ("lab11_multinode", "b"), ("lab77_other", "c")])
def test_a_lab_may_be_named_by_its_beginning_and_another_clones_by_its_name(name, run, root, capsys):
    commands.dispatch(["results", name])
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()[1:]] == [run]


@pytest.mark.parametrize(("name", "message"), [
    ("lab02", "no runs of lab02_horovod in .*; `labs run lab02_horovod --workers 2` makes one"),
    ("nosuch", "unknown lab 'nosuch'; there are: lab01_baseline, "),
])
def test_what_is_missing_is_said(name, message, root):
    with pytest.raises(LabError, match=message):
        commands.dispatch(["results", name, "--csv", str(root / "runs.csv")])
    assert not (root / "runs.csv").exists()


def test_figures_have_four_digits_and_what_is_missing_is_blank(tmp_path):
    full, empty = record("a"), record("b")
    full["timings"] = {"images_per_sec": 1586.375971, "seconds_per_epoch": 12.34567}
    full["metrics"] = {"test_accuracy": 0.98765}
    empty["timings"] = full["timings"] | {"images_per_sec": None}
    empty |= {"metrics": {}, "config": {}}
    write(tmp_path, full, empty)
    heading, first, second = listing.table(listing.load(None, tmp_path)).splitlines()
    assert heading.split("  ")[-1] == "test accuracy"
    assert first.split() == ["lab10_caltech", "a", "2", "1", "32", "64", "1586", "12.35", "0.6", "0.9877"]
    assert second.split() == ["lab10_caltech", "b", "2", "1", "64", "12.35", "0.6"]
    assert len({len(line) for line in (heading, first, second)}) == 1


def test_a_spreadsheet_gets_counts_as_whole_numbers(tmp_path):
    write(tmp_path, record("a"), record("b") | {"config": {}})
    assert ",32," in listing.csv(listing.load(None, tmp_path))
