"""Slurm on `labs cluster`: it is real, keeps to the cluster's namespaces and leaves nothing behind."""

from __future__ import annotations

import psutil
import pytest

from tests.slurm.client import processes
from tests.slurm.conftest import running
from tests.tools.cluster.client import names, until

pytestmark = pytest.mark.slurm
SLURMCTLD_PORT = "1AA1"


def shell(slurm, *words: object) -> str:
    """Run one of Slurm's commands as a user types it, and return what it printed."""
    return slurm.cluster.labs("shell", "--", *words).stdout


def test_slurms_commands_work_as_on_a_login_node(slurm):
    assert shell(slurm, "sinfo", "--noheader", "--Node", "--format=%N %c %G %T").splitlines() == [
        "node1 4 gpu:2 idle", "node2 4 gpu:2 idle"]
    assert sorted(shell(slurm, "srun", "-N2", "hostname").split()) == ["node1", "node2"]


def test_nothing_listens_outside_the_cluster(slurm):
    """A socket of another network namespace is in no list of this one."""
    mine = {process.pid for process in slurm.cluster.processes()}
    assert f":{SLURMCTLD_PORT} " in slurm.cluster.on("head", "cat", "/proc/net/tcp")
    outside = [each for each in psutil.net_connections("inet") if each.pid in mine]
    assert not outside


@pytest.mark.parametrize("how", ["down", "killed"])
def test_nothing_is_left(tmp_path_factory, how):
    """Four nodes beside the two of the other tests; ended in the middle of a job."""
    with running(tmp_path_factory, nodes=4) as four:
        four.run("sbatch", "-N4", "--output=/dev/null", "--wrap", "srun sleep 86399")
        until(lambda: len(processes(four.conf, "sleep")) == 4)
        if how == "down":
            assert four.cluster.labs("down").stdout == "the cluster has ended\n"
            assert not four.cluster.folder.exists()
        else:
            psutil.Process(int((four.cluster.folder / "head.pid").read_text().split()[0])).kill()
        until(lambda: not four.cluster.processes(), 10, lambda: names(four.cluster.processes()))
    assert not four.cluster.folder.exists()
