"""`labs check` on a real cluster: its partitions, and what keeps jobs from them."""

from __future__ import annotations

import re
import sys

import pytest

pytestmark = pytest.mark.slurm


def test_the_partition_of_jobs_is_checked(slurm, tmp_path):
    def check(pattern: str, code: int, **variables: str) -> None:
        done = slurm.process(sys.executable, "-m", "labs", "check", "--only", "slurm", **variables)
        assert (done.returncode, bool(re.fullmatch(f"{pattern}\n", done.stdout))) == (code, True), done.stdout

    check(r"ok .*partitions: lab\*", 0)
    check(r"fail .* partition mars, .* does not exist.* -> export SBATCH_PARTITION=lab", 1, SBATCH_PARTITION="mars")
    with slurm.drained("node[1-2]"):
        check("fail .* partition lab, .* has no node that is up; .* -> tell the cluster's administrator", 1)
    slurm.run("scontrol", "update", "partitionname=lab", "default=no")
    try:
        check("warn .* no partition is the default, .* -> export SBATCH_PARTITION=lab", 0)
    finally:
        slurm.run("scontrol", "update", "partitionname=lab", "default=yes")
    (tmp_path / "slurm.conf").write_text(slurm.conf.read_text() + "SlurmctldPort=1\n")
    check(r"fail .* Slurm does not answer \(.* -> try again on the login node", 1,
          SLURM_CONF=str(tmp_path / "slurm.conf"))
