"""Reference runs: records kept with the kit, and read back."""

from __future__ import annotations

import pytest

from labs.results import reference
from labs.run.errors import LabError
from tests.results.test_records import record


def test_a_kept_record_reads_as_before(tmp_path):
    assert reference.keep([record("a"), record("b")], "here", tmp_path) == 2
    assert reference.read_all("here", "lab10_caltech", tmp_path) == [record("a"), record("b")]
    assert reference.read_all("here", "lab11_multinode", tmp_path) == []


def test_a_name_that_leads_elsewhere_is_refused(tmp_path):
    with pytest.raises(LabError, match="not the name of one folder"):
        reference.keep([], "../elsewhere", tmp_path)


def test_an_unknown_set_is_refused_with_those_there_are(tmp_path):
    reference.keep([record()], "here", tmp_path)
    with pytest.raises(LabError, match="no reference runs are called 'there'; there are: here"):
        reference.read_all("there", folder=tmp_path)


def test_every_committed_reference_run_is_a_record():
    for folder in reference.FOLDER.glob("*/"):
        runs = reference.read_all(folder.name)
        assert len(runs) == len(list(folder.glob("*/*/record.json")))
        assert all(run["machine"]["host"] for run in runs)
