"""Slurm's commands, and what they say of the cluster's nodes and partitions. Imports no TensorFlow."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from labs.run.allocation import gpus
from labs.run.errors import LabError

SEPARATOR = "|"


@dataclass(frozen=True)
class Node:
    """A node's resources, as its partitions offer them."""

    partition: str
    name: str
    cpus: int
    memory_mb: int
    gpus: int
    state: str

    @property
    def up(self) -> bool:
        """Whether jobs can run here, now or later."""
        return not re.match(r"down|drain|fail|maint|unk", self.state) and not self.state.endswith("*")


@dataclass(frozen=True)
class Partition:
    """A partition's rules."""

    name: str
    default: bool
    state: str
    max_time: str
    max_nodes: str

    def most_nodes(self, nodes: Sequence[Node]) -> int:
        """Return how many nodes a job may have, given this partition's nodes."""
        return min(len(nodes), int(self.max_nodes) if self.max_nodes.isdigit() else len(nodes))


class NoSlurmError(LabError):
    """There is no Slurm here to ask."""

    def __init__(self, reason: str):
        super().__init__(f"{reason}; run this on a cluster's login node, or start a test cluster (docs/cluster.md)")


def run(*command: str, timeout: float = 60) -> tuple[int, str, str]:
    """Run one of Slurm's commands and return its exit code, output and error output.

    Raises:
        LabError: This machine has no Slurm or no cluster, or Slurm does not answer.
    """
    conf = os.environ.get("SLURM_CONF")
    if conf and not Path(conf).is_file():  # Slurm would wait a minute for it.
        raise NoSlurmError(f"no Slurm cluster is set up here (SLURM_CONF={conf} is not a file)")
    # A student's own settings for squeue and sinfo would change the columns that are read here.
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SQUEUE_", "SINFO_"))}
    env |= {"SLURM_TIME_FORMAT": "standard"}
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=timeout)
    except FileNotFoundError:
        raise NoSlurmError(f"no {command[0]} on the PATH: this machine has no Slurm") from None
    except subprocess.TimeoutExpired:
        raise LabError(f"{command[0]} has not answered for {timeout:.0f} s: Slurm is down or busy; "
                       "try again later") from None
    if re.search(r"Could not establish a configuration|Unable to process configuration", done.stderr):
        reason = f"SLURM_CONF={conf} defines no cluster" if conf else "Slurm's programs find no slurm.conf"
        raise NoSlurmError(f"no Slurm cluster is set up here ({reason})")
    if re.search(r"Unable to contact slurm|Connection refused", done.stderr):
        raise LabError(f"Slurm does not answer ({done.stderr.strip().splitlines()[-1]}); try again on the login node")
    return done.returncode, done.stdout, done.stderr


def ask(*command: str, timeout: float = 60) -> str:
    """Return what one of Slurm's commands prints.

    Raises:
        LabError: The command cannot be run (see `run`), or Slurm refused; the message is Slurm's last line.
    """
    code, out, errors = run(*command, timeout=timeout)
    if code:
        raise LabError(f"{command[0]} refused: {(errors.strip() or 'no reason given').splitlines()[-1]}")
    return out


def table(*command: str) -> list[list[str]]:
    """Return the output of one of Slurm's commands, split at the separators of its format."""
    width = command[-1].count(SEPARATOR)
    return [line.split(SEPARATOR, width) for line in ask(*command).splitlines() if line.count(SEPARATOR) >= width]


def partitions() -> dict[str, Partition]:
    """Return the partitions of this cluster, by name."""
    by_name = {}
    for line in ask("scontrol", "show", "partition", "--oneliner").splitlines():
        facts = dict(re.findall(r"(\w+)=(\S*)", line))
        if "PartitionName" in facts:
            by_name[facts["PartitionName"]] = Partition(
                facts["PartitionName"], facts.get("Default") == "YES", facts.get("State", "UP"),
                facts.get("MaxTime", "UNLIMITED"), facts.get("MaxNodes", "UNLIMITED"))
    return by_name


def nodes() -> list[Node]:
    """Return the nodes, each once per partition that it belongs to."""
    rows = table("sinfo", "--Node", "--noheader", "--format=%R|%N|%c|%m|%T|%G")
    return [Node(partition, name, int(cpus), int(memory), gpus(gres), state)
            for partition, name, cpus, memory, state, gres in rows]


def gpus_of_nodes(node_list: str) -> int:
    """Return the smallest number of GPUs of these nodes; 0 if Slurm does not answer at once.

    Args:
        node_list: As Slurm writes it: "node[1-2]".
    """
    try:
        out = ask("scontrol", "show", "node", node_list, "--oneliner", timeout=5)
    except LabError:  # Some sites forbid it on compute nodes; a run must not fail for a hint.
        return 0
    return min((gpus(gres) for gres in re.findall(r" Gres=(\S+)", out)), default=0)


def ask_for_gpus(count: int) -> str:
    """Return the sbatch options that give a job the node's GPUs, with one worker for each GPU."""
    return f"to use them: sbatch --gpus-per-node={count} --ntasks-per-node={count}"
