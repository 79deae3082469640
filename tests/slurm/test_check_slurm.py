"""`labs check` on a real cluster: its partitions, and what keeps jobs from them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable

import pytest

from tests.slurm.client import Slurm

pytestmark = pytest.mark.slurm


def lines(slurm: Slurm, **variables: str) -> dict[str, dict[str, str]]:
    """Return what `labs check --only slurm` says, by the name of the line."""
    done = slurm.process(sys.executable, "-m", "labs", "check", "--json", "--only", "slurm", **variables)
    result = {line["name"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == int(any(line["state"] == "fail" for line in result.values())), done.stderr
    return result


def test_a_cluster_that_is_well(slurm):
    result = lines(slurm)
    assert {name: line["state"] for name, line in result.items()} == {"slurm": "ok", "partitions": "ok"}
    assert re.fullmatch(r"its controller on \S+ answers", result["slurm"]["found"])
    assert result["partitions"]["found"].startswith("lab*")


def test_a_partition_that_is_not_there(slurm):
    partitions = lines(slurm, SBATCH_PARTITION="mars")["partitions"]
    assert (partitions["state"], partitions["cure"]) == ("fail", "export SBATCH_PARTITION=lab")
    assert partitions["found"].startswith("SBATCH_PARTITION=mars does not exist; there are: lab*")


def test_a_partition_that_is_down(slurm):
    slurm.run("scontrol", "create", "partitionname=night", "nodes=node1", "state=down")
    try:
        partitions = lines(slurm, SBATCH_PARTITION="night")["partitions"]
    finally:
        slurm.run("scontrol", "delete", "partitionname=night")
    assert (partitions["state"], partitions["cure"]) == ("fail", "export SBATCH_PARTITION=lab")
    assert partitions["found"].startswith("night, where jobs would go, is down or has no node that is up")


def test_no_partition_is_the_default(slurm):
    slurm.run("scontrol", "update", "partitionname=lab", "default=no")
    try:
        partitions = lines(slurm)["partitions"]
    finally:
        slurm.run("scontrol", "update", "partitionname=lab", "default=yes")
    assert (partitions["state"], partitions["cure"]) == ("warn", "export SBATCH_PARTITION=lab")


def test_all_nodes_are_drained(slurm):
    with slurm.drained("node[1-2]"):
        partitions = lines(slurm)["partitions"]
    assert partitions["state"] == "fail"
    assert partitions["found"].startswith("lab, where jobs would go, is down or has no node that is up")


def socket_that_is_gone(text: str) -> str:
    return text.replace("munge.socket", "gone.socket")


def unused_port(text: str) -> str:
    return text + "SlurmctldPort=1\n"


@pytest.mark.parametrize(
    ("change", "cause", "cure"),
    [
        (socket_that_is_gone, "munged does not answer: .*gone.socket", "systemctl start munge"),
        (unused_port, r"its controller does not answer \(.* is DOWN\)", "try again on a login node"),
    ],
)
def test_what_does_not_answer(change: Callable[[str], str], cause, cure, slurm, tmp_path):
    conf = tmp_path / "slurm.conf"
    conf.write_text(change(slurm.conf.read_text()))
    (result,) = lines(slurm, SLURM_CONF=str(conf)).values()
    assert result["state"] == "fail"
    assert re.search(cause, result["found"]), result
    assert cure in result["cure"]
