"""What a run says whose launcher ended without a record."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import psutil
import pytest

from labs.launch import local, supervisor
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
def test_a_launch_without_a_record_is_one_line(tmp_path, monkeypatch, program, output):
    monkeypatch.setenv("LAUNCHER", program)
    with pytest.raises(LabError) as caught:
        local.run(ends_early, ["--name", "it", "--results", str(tmp_path)], workers=1)
    assert str(caught.value) == output


def freeze_mpirun(results: Path, frozen: list[psutil.Process]) -> None:
    """Suspend mpirun once the run's record is written: it hangs like one that has missed its workers' exit."""
    while not (results / "lab10_caltech/it/record.json").exists():
        time.sleep(0.02)
    mpirun = next(each for each in psutil.Process().children() if str(results) in each.cmdline())
    frozen += [mpirun, *mpirun.children(recursive=True)]
    mpirun.suspend()


@pytest.mark.workers
def test_a_finished_run_does_not_wait_for_a_launcher_that_does_not_end(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "SECONDS_AFTER_WORKERS", 3.0)
    frozen: list[psutil.Process] = []
    threading.Thread(target=freeze_mpirun, args=[tmp_path, frozen], daemon=True).start()
    arguments = ["--epochs", "1", "--image-size", "32", "--name", "it", "--results", str(tmp_path)]
    with ends(120):
        assert local.run("lab10", arguments, workers=2)["layout"]["size"] == 2
    assert frozen
    _, left = psutil.wait_procs(frozen, timeout=5)
    assert not [each for each in left if each.status() != psutil.STATUS_ZOMBIE]
