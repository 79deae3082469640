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


def lines(slurm: Slurm, **variables: str) -> dict[str, dict[str, str]]:
    """Return what `labs check --only slurm` says, by the name of the line."""
    done = slurm.process(sys.executable, "-m", "labs", "check", "--json", "--only", "slurm", **variables)
    result = {line["name"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == int(any(line["state"] == "fail" for line in result.values())), done.stderr
    return result


def test_a_healthy_cluster_passes(slurm):
    result = lines(slurm)
    assert {name: line["state"] for name, line in result.items()} == {"slurm": "ok", "partitions": "ok"}
    assert result["partitions"]["found"].startswith("lab*")


@contextlib.contextmanager
def no_default(slurm: Slurm) -> Iterator[None]:
    slurm.run("scontrol", "update", "partitionname=lab", "default=no")
    try:
        yield
    finally:
        slurm.run("scontrol", "update", "partitionname=lab", "default=yes")


@pytest.mark.parametrize(("change", "variables", "state", "cause", "cure"), [
    (lambda slurm: contextlib.nullcontext(), {"SBATCH_PARTITION": "mars"}, "fail", "mars, .* does not exist; there are",
     "export SBATCH_PARTITION=lab"),
    (lambda slurm: slurm.drained("node[1-2]"), {}, "fail", "lab, .* has no node that is up", "administrator"),
    (no_default, {}, "warn", "none is the default", "export SBATCH_PARTITION=lab"),
], ids=["no such partition", "drained", "no default"])
def test_what_keeps_jobs_from_the_partitions(slurm, change, variables, state, cause, cure):
    with change(slurm):
        partitions = lines(slurm, **variables)["partitions"]
    assert partitions["state"] == state
    assert re.match(cause, partitions["found"])
    assert cure in partitions["cure"]


def test_a_controller_that_does_not_answer(slurm, tmp_path):
    (tmp_path / "slurm.conf").write_text(slurm.conf.read_text() + "SlurmctldPort=1\n")
    (result,) = lines(slurm, SLURM_CONF=str(tmp_path / "slurm.conf")).values()
    assert result["state"] == "fail"
    assert re.search(r"its controller does not answer \(.* is DOWN\)", result["found"]), result
    assert "try again on a login node" in result["cure"]
