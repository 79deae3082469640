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
    with pytest.raises(LabError, match="no reference runs are called 'there'; there are: here"):
        reference.read_all("there", folder=tmp_path)


def test_every_committed_reference_run_is_a_record():
    for folder in reference.FOLDER.glob("*/"):
        assert len(reference.read_all(folder.name)) == len(list(folder.glob("*/*/record.json")))
