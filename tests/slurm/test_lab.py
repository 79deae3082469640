"""A lab on a real Slurm cluster, from `sbatch` to its record."""

from __future__ import annotations

import json
import re

import pytest

from tests.slurm.client import processes
from tests.tools.cluster.client import until

pytestmark = pytest.mark.slurm
JOB = "jobs/lab10_caltech.sh"
DAEMONS = {"munged", "slurmctld", "slurmscriptd", "slurmd"}


@pytest.mark.everyday
def test_it_trains_on_two_nodes(slurm, tmp_path):
    words = ["--epochs", "1", "--image-size", "32", "--results", tmp_path / "my results", "--name", "two"]
    # --export=NONE is some sites' default: env.sh must reach the second node nevertheless.
    job = slurm.submit("-N2", "--export=NONE", JOB, *words, output=tmp_path / "out")
    assert job.wait(180) == "COMPLETED", job.text()
    record = json.loads((tmp_path / "my results/lab10_caltech/two/record.json").read_text())
    layout = record["layout"]
    assert (layout["nodes"], layout["size"], layout["local_size"]) == (2, 2, 1)
    assert layout["hosts"] == ["node1", "node2"]


def test_a_mistake_is_the_last_line(slurm, tmp_path):
    data = tmp_path / 'no "such"  folder\'s $HOME'
    job = slurm.submit("-N2", JOB, "--data", data, "--results", tmp_path, output=tmp_path / "out")
    assert (job.wait(180), job.facts()["ExitCode"]) == ("FAILED", "1:0")
    last = job.text().splitlines()[-1]
    assert re.fullmatch(rf"labs: error: .*{re.escape(str(data))}.*", last)


def test_nothing_trains_on_after_scancel(slurm, tmp_path):
    words = ["--epochs", "9999", "--image-size", "32", "--results", tmp_path, "--name", "long"]
    job = slurm.submit("-N2", JOB, *words, output=tmp_path / "out")
    saved = tmp_path / "lab10_caltech/long/checkpoints"
    until(lambda: list(saved.glob("*.npz")) or job.facts()["JobState"] == "FAILED", 180)
    assert not set(processes(slurm.conf)) <= DAEMONS
    slurm.run("scancel", job.number)
    assert job.wait() == "CANCELLED", job.text()
    until(lambda: set(processes(slurm.conf)) <= DAEMONS)
