"""What a run says whose launcher ended without a record."""

import pytest

from labs.run import local
from labs.run.errors import LabError
from tests.workers.programs import ends_early

LINE = "$(printf -- -%.0s {1..60})"


@pytest.mark.parametrize(("program", "output"), [
    ("exit 0", "the launcher ended with code 0 and no record: it gave no reason; `labs check` looks for the cause"),
    ("kill -KILL $$", "the launcher was killed by SIGKILL: it gave no reason; `labs check` looks for the cause"),
    (f"printf '%s\\nno such\\nprogram\\n%s\\n' {LINE} {LINE} >&2; exit 3",
     "the launcher ended with code 3 and no record: no such program"),
    (f"printf '%s\\nA daemon failed on\\nRemote host: n2\\n%s\\n' {LINE} {LINE} >&2",
     "node n2 is lost: the launcher's daemon there has ended"),
], ids=["no record", "killed", "message", "lost node"])
def test_a_launch_without_a_record_is_reported_in_one_line(tmp_path, monkeypatch, program, output):
    monkeypatch.setenv("LAUNCHER", program)
    with pytest.raises(LabError) as caught:
        local.run(ends_early, ["--name", "it", "--results", str(tmp_path)], workers=1)
    assert str(caught.value) == output
