"""Slurm on `labs cluster`: it is real, keeps to the cluster's namespaces and leaves nothing behind."""

from __future__ import annotations

import psutil
import pytest

from tests.slurm.client import processes
from tests.slurm.conftest import running
from tests.tools.cluster.client import names, until

pytestmark = pytest.mark.slurm
SLURMCTLD_PORT = "1AA1"


def test_slurm_runs_jobs_inside_the_cluster_only_and_ends_with_it(tmp_path_factory, slurm):
    """Four nodes beside the two of the other tests; ended in the middle of a job."""
    with running(tmp_path_factory, nodes=4) as four:
        printed = four.cluster.labs("shell", "--", "sinfo", "--noheader", "--Node", "--format=%N %c %G %T").stdout
        assert printed.splitlines() == [f"node{number} 4 gpu:2 idle" for number in range(1, 5)]
        four.run("sbatch", "-N4", "--output=/dev/null", "--wrap", "srun sleep 86399")
        until(lambda: len(processes(four.conf, "sleep")) == 4)
        # A socket of another network namespace is in no list of this one.
        assert f":{SLURMCTLD_PORT} " in four.cluster.on("head", "cat", "/proc/net/tcp")
        mine = {process.pid for process in four.cluster.processes()}
        assert not [each for each in psutil.net_connections("inet") if each.pid in mine]
        four.cluster.labs("down")
        until(lambda: not four.cluster.processes(), 10, lambda: names(four.cluster.processes()))
        assert not four.cluster.folder.exists()
    assert "node[1-2]" in slurm.run("sinfo")
