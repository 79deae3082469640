"""What a run says whose launcher ended without a record."""

from __future__ import annotations

import math

import psutil
import pytest

from labs.launch import failure, local, supervisor
from labs.run.errors import LabError
from tests.waiting import ends
from tests.workers.programs import ends_early


@pytest.mark.parametrize(("program", "output"), [
    ("exit 0", "the launcher ended with code 0, but the run has written no record"),
    ("exit 3", "the launcher ended with code 3: it gave no reason; `labs check` looks for the cause"),
    ("kill -KILL $$", "the launcher was killed by SIGKILL"),
    ("kill -TERM $$", "the launcher was killed by SIGTERM"),
    ("line=$(printf -- -%.0s {1..60}); printf '%s\\nA daemon failed on\\nRemote host: n2\\n%s\\n' $line $line >&2",
     "the launcher ended with code 0, but the run has written no record: A daemon failed on Remote host: n2"),
    ("printf 'labs: error: it is \\e[31mred\\a\\n' >&2; exit 1", "it is \\x1b[31mred\\x07"),
], ids=["no record", "no reason", "killed", "terminated", "message", "escape sequence"])
def test_a_launch_without_a_record_is_reported_in_one_line(tmp_path, monkeypatch, program, output):
    monkeypatch.setenv("LAUNCHER", program)
    with pytest.raises(LabError) as caught:
        local.run(ends_early, ["--name", "it", "--results", str(tmp_path)], workers=1)
    assert str(caught.value) == output


@pytest.mark.workers
def test_a_finished_run_does_not_wait_for_a_launcher_that_does_not_end(tmp_path, monkeypatch):
    """mpirun is suspended after the last heartbeat: it hangs like one that has missed its workers' exit."""
    frozen: list[psutil.Process] = []
    extract = failure.Evidence.extract_heartbeats

    def freeze(evidence: failure.Evidence, text: str) -> str:
        rest = extract(evidence, text)
        if evidence.finish_time < math.inf and not frozen:
            mpirun = next(each for each in psutil.Process().children() if str(tmp_path) in each.cmdline())
            frozen.extend([mpirun, *mpirun.children(recursive=True)])
            mpirun.suspend()
        return rest

    monkeypatch.setattr(failure.Evidence, "extract_heartbeats", freeze)
    monkeypatch.setattr(supervisor, "SECONDS_AFTER_WORKERS", 3.0)
    arguments = ["--epochs", "1", "--image-size", "32", "--name", "it", "--results", str(tmp_path)]
    with ends(120):
        assert local.run("lab10", arguments, workers=2)["layout"]["size"] == 2
    assert frozen
    _, left = psutil.wait_procs(frozen, timeout=5)
    assert not [each for each in left if each.status() != psutil.STATUS_ZOMBIE]
