"""A job that is longer than its time limit ends by itself, over several starts, with nothing trained twice."""

from __future__ import annotations

import json
import math
import re
import statistics
import time

import pytest

from tests.slurm.client import processes
from tests.slurm.test_lab import DAEMONS

pytestmark = pytest.mark.slurm
JOB = "jobs/lab10_caltech.sh"
SMALL = ("--image-size", "16", "--batch-size", "64")
ENDS = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")


def finish(slurm, job, seconds: float) -> str:
    """Wait for a job that goes back into the queue, and return its last state.

    Slurm lets it pause there for two minutes each time, so that its last processes have ended, and their end is not
    taken for that of the next start; the test looks for them, and has it start ten seconds after they have gone.
    """
    deadline, ended, alone = time.monotonic() + seconds, 0, 0
    while True:
        facts = job.facts()
        # On its way back into the queue a job may look ended, and failed, until its last processes are gone.
        if ended >= (5 if facts["JobState"] == "COMPLETED" else 30):
            return facts["JobState"]
        assert time.monotonic() < deadline, job.text()
        paused = facts["JobState"] == "PENDING" and facts["Reason"] == "BeginTime"
        alone = alone + 1 if paused and set(processes(slurm.conf)) <= DAEMONS else 0
        if alone == 10:
            slurm.run("scontrol", "update", f"jobid={job.number}", "starttime=now")
        ended = ended + 1 if facts["JobState"] in ENDS else 0
        time.sleep(1)


def epochs(text: str) -> list[int]:
    """Return the epochs that were trained to their end, as the log of all starts tells them."""
    return [int(number) for number in re.findall(r"^epoch (\d+)/", text, re.MULTILINE)]


def seconds_per_epoch(slurm, folder) -> float:
    """Return how long an epoch of the same run takes on this machine, from the lines of a short one."""
    job = slurm.submit(JOB, "--epochs", 12, *SMALL, "--results", folder, "--name", "short", output=folder / "short")
    assert job.wait(200) == "COMPLETED", job.text()
    history = json.loads((folder / "lab10_caltech/short/record.json").read_text())["history"]
    return statistics.median(row["train_seconds"] + row["val_seconds"] for row in history)


@pytest.mark.timeout(1100)
def test_a_run_longer_than_its_limit_goes_on_by_itself(slurm, tmp_path):
    """The shortest limit is a minute, and the signal may come half a minute early; the run has work for two."""
    count = math.ceil(120 / seconds_per_epoch(slurm, tmp_path))
    job = slurm.submit("--time=1", "--signal=B:USR1@5", JOB, "--epochs", count, *SMALL, "--results", tmp_path,
                       output=tmp_path / "out")
    assert finish(slurm, job, 900) == "COMPLETED", job.text()
    restarts = int(job.facts()["Restarts"])
    assert restarts >= 1
    assert epochs(job.text()) == list(range(1, count + 1)), "an epoch was trained twice"
    name = f"lab10_caltech-{job.number}"
    history = json.loads((tmp_path / f"lab10_caltech/{name}/record.json").read_text())["history"]
    assert [row["epoch"] for row in history] == list(range(1, count + 1))
    assert job.text().count("goes back into the queue") == restarts
    stops = re.findall(r"^stopped and saved after (?:step (\d+) of )?epoch (\d+)", job.text(), re.MULTILINE)
    starts = re.findall(r"^resumed after epoch (\d+)(?:, step (\d+))?", job.text(), re.MULTILINE)
    assert stops, "the signal was not heard in time"
    between = [(int(epoch) - 1, int(step)) for step, epoch in stops if step]
    assert set(between) <= {(int(epoch), int(step)) for epoch, step in starts if step}, "a step was taken twice"


def test_a_job_that_never_gets_done_stops_going_back(slurm, tmp_path):
    job = slurm.submit(JOB, "--epochs", 9999, *SMALL, "--results", tmp_path, output=tmp_path / "out", LABS_REQUEUES="0")
    while not epochs(job.text()):
        time.sleep(0.2)
    slurm.run("scancel", "--batch", "--signal=USR1", job.number)
    assert (job.wait(60), job.facts()["ExitCode"]) == ("FAILED", "1:0")
    assert job.text().splitlines()[-1].startswith("labs: error: the time limit is near after 0 requeues; ask for more")
