"""`labs check` on a real cluster: its partitions, and what keeps jobs from them."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterator

import pytest

from tests.slurm.client import Slurm

pytestmark = pytest.mark.slurm


def finding(slurm: Slurm, **variables: str) -> dict[str, str]:
    """Return the line of `labs check --only slurm`."""
    done = slurm.process(sys.executable, "-m", "labs", "check", "--json", "--only", "slurm", **variables)
    (line,) = map(json.loads, done.stdout.splitlines())
    assert done.returncode == int(line["state"] == "fail"), done.stderr
    return line


def test_a_healthy_cluster_passes(slurm):
    result = finding(slurm)
    assert (result["state"], "partitions: lab*" in result["message"]) == ("ok", True)


@contextlib.contextmanager
def no_default(slurm: Slurm) -> Iterator[None]:
    slurm.run("scontrol", "update", "partitionname=lab", "default=no")
    try:
        yield
    finally:
        slurm.run("scontrol", "update", "partitionname=lab", "default=yes")


@pytest.mark.parametrize(("change", "variables", "state", "cause", "cure"), [
    (lambda slurm: contextlib.nullcontext(), {"SBATCH_PARTITION": "mars"}, "fail", "partition mars, .* does not exist",
     "export SBATCH_PARTITION=lab"),
    (lambda slurm: slurm.drained("node[1-2]"), {}, "fail", "partition lab, .* has no node that is up", "administrator"),
    (no_default, {}, "warn", "no partition is the default", "export SBATCH_PARTITION=lab"),
], ids=["no such partition", "drained", "no default"])
def test_what_keeps_jobs_from_the_partitions(slurm, change, variables, state, cause, cure):
    with change(slurm):
        result = finding(slurm, **variables)
    assert result["state"] == state
    assert re.match(cause, result["message"])
    assert cure in result["cure"]


def test_a_controller_that_does_not_answer(slurm, tmp_path):
    (tmp_path / "slurm.conf").write_text(slurm.conf.read_text() + "SlurmctldPort=1\n")
    result = finding(slurm, SLURM_CONF=str(tmp_path / "slurm.conf"))
    assert result["state"] == "fail"
    assert re.search(r"its controller does not answer \(.* is DOWN\)", result["message"]), result
    assert "try again on a login node" in result["cure"]
