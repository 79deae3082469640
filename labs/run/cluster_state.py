"""The state of this user's cluster: a folder with cluster.json, which every command reads."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from labs.run import atomic
from labs.run.errors import LabError
from labs.run.paths import named

FOLDER = "LABS_CLUSTER"
"""The variable that names the cluster's folder; a second cluster needs a second folder."""
INSIDE = "LABS_INSIDE_CLUSTER"
"""Set in every process of the cluster; its host name says on which host it runs."""
HEAD = "head"
"""The host from which runs are started, as from a login node. It has no link whose bandwidth is set."""
SUBNET = "10.77.0.0/24"
MOST_NODES = 64
UNLIMITED = "unlimited"


@dataclasses.dataclass(frozen=True)
class Link:
    """A node's link to the switch, the same in both directions."""

    bandwidth: str = UNLIMITED
    """As given to `tc`, such as "100mbit"; or UNLIMITED."""
    latency: str = ""
    """One-way delay in each direction, as given to `tc`, such as "200us"; empty: none is added."""
    up: bool = True

    def __str__(self) -> str:
        return self.bandwidth + f" +{self.latency}" * bool(self.latency) + ", down" * (not self.up)


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The nodes of a cluster that is up."""

    pids: dict[str, int]
    """PID of the process that holds each host's namespaces, in the cluster's PID namespace."""
    cores: dict[str, list[int]]
    """The processor cores on which each node's processes may run."""
    links: dict[str, Link]
    """Each node's link."""
    cpus: int = 0
    """CPUs of each node that Slurm assumes; 0: its cores."""
    gpus: int = 0
    """GPUs of each node that Slurm assumes."""
    slurm: bool = False
    """Whether Slurm runs on it."""
    owner: Sequence[int] = ()
    """User and group, if an ordinary user owns it. Its processes are root in the cluster's user namespace."""
    shared: Sequence[str] = ()
    """The folders below /tmp that all hosts see."""

    @property
    def nodes(self) -> list[str]:
        """The nodes' names, without the head."""
        return list(self.links)


def folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of this user's cluster: `LABS_CLUSTER`, else one in the folder of temporary files."""
    default = Path(tempfile.gettempdir()) / f"labs-cluster-{os.getuid()}"
    return named(environ.get(FOLDER) or default, FOLDER).absolute()


def address(host: str) -> str:
    """Return a host's address: node N has the Nth of the subnet, the head the last."""
    number = 254 if host == HEAD else int(host.removeprefix("node"))
    return SUBNET.replace("0/24", str(number))


def inside(environ: Mapping[str, str] = os.environ) -> str:
    """Return the host of the cluster on which this process runs, or an empty string outside a cluster."""
    # The host's name in a variable would be wrong: mpirun copies the head's variables to the workers.
    return socket.gethostname() if environ.get(INSIDE) else ""


def write(cluster: Cluster) -> None:
    """Replace cluster.json."""
    atomic.write_json(folder() / "cluster.json", dataclasses.asdict(cluster))


def head_process() -> psutil.Process | None:
    """Return the cluster's first process, as seen outside, or None if no cluster is up."""
    try:
        if folder().lstat().st_uid != os.getuid():  # Any user can make it in a folder that all users share.
            return None
        pid, began = map(int, atomic.read_text(folder() / "head.pid").split())
        process = psutil.Process(pid)
        # A later process may have the same number.
        return process if _began(pid) == began else None
    except (OSError, ValueError, psutil.NoSuchProcess):
        return None


def sign(head: psutil.Process) -> None:
    """Record the PID of the cluster's first process, as seen outside."""
    atomic.write_text(folder() / "head.pid", f"{head.pid} {_began(head.pid)}\n")


def _began(pid: int) -> int:
    """Return when a process began, in the kernel's ticks: psutil's time of day moves when the clock is set."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def current() -> Cluster | None:
    """Return the cluster that is up, or None."""
    if not inside() and head_process() is None:
        return None
    try:
        values = json.loads(atomic.read_text(folder() / "cluster.json"))
    except (OSError, ValueError):
        return None
    return Cluster(**values | {"links": {node: Link(**link) for node, link in values["links"].items()}})


def require() -> Cluster:
    """Return the cluster that is up.

    Raises:
        LabError: No cluster is up.
    """
    if cluster := current():
        return cluster
    raise LabError("no cluster is up; start one with `labs cluster up --nodes 2`")
