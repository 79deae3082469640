"""What a run says whose launcher ended without a record."""

from __future__ import annotations

import pytest

from labs.launch import local
from labs.run.errors import LabError
from tests.workers.programs import ends_early


@pytest.mark.parametrize(("program", "output"), [
    ("exit 0", "the launcher ended with code 0, but the run has written no record"),
    ("exit 3", "the launcher ended with code 3: it gave no reason; `labs check` looks for the cause"),
    ("kill -KILL $$", "the launcher was killed by SIGKILL"),
    ("kill -TERM $$", "the launcher was killed by SIGTERM"),
    ("line=$(printf -- -%.0s {1..60}); printf '%s\\nA daemon failed on\\nRemote host: n2\\n%s\\n' $line $line >&2",
     "the launcher ended with code 0, but the run has written no record: A daemon failed on Remote host: n2"),
], ids=["no record", "no reason", "killed", "terminated", "message"])
def test_a_launch_without_a_record_is_reported_in_one_line(tmp_path, monkeypatch, program, output):
    monkeypatch.setenv("LAUNCHER", program)
    with pytest.raises(LabError) as caught:
        local.run(ends_early, ["--name", "it", "--results", str(tmp_path)], workers=1)
    assert str(caught.value) == output
