"""This user's cluster, made by `labs cluster`: its state, which is cluster.json in a folder, and its links."""

import contextlib
import dataclasses
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from labs.run import atomic, resources
from labs.run.errors import ERROR_PREFIX, LabError

FOLDER, INSIDE = "LABS_CLUSTER", "LABS_INSIDE_CLUSTER"
"""The variable with the cluster's folder (a second cluster needs another), and the one of each process inside."""
FILE, HEAD = "cluster.json", "head"
"""The state's file; the host from which runs are started, as from a login node, which has no link to be set."""
SUBNET, UNLIMITED = "10.77.0.0/24", "unlimited"
CHANGES = "changes.lock"  # Held in the cluster's folder by the process that sets links for a study or a sweep.


@dataclasses.dataclass(frozen=True)
class Link:
    """A node's link to the switch, the same in both directions; its bandwidth is such as "100mbit", or UNLIMITED."""

    bandwidth: str = UNLIMITED
    up: bool = True

    def __str__(self) -> str:
        return self.bandwidth + ", down" * (not self.up)


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The nodes of a cluster."""

    head: Sequence[int]
    """PID of its first process, as seen outside, and that process's start: a later one may have the same PID."""
    pids: dict[str, int]
    """PID of the process that holds each host's namespaces, in the cluster's PID namespace."""
    cores: dict[str, list[int]]
    links: dict[str, Link]
    slurm: bool
    owner: Sequence[int]
    """User and group, if an ordinary user owns it. Its processes are root in the cluster's user namespace."""


def folder() -> Path:
    """Return the folder of this user's cluster: `LABS_CLUSTER`, else one in the folder of temporary files."""
    default = f"{tempfile.gettempdir()}/labs-cluster-{os.getuid()}"
    return Path(os.environ.get(FOLDER) or default).expanduser().absolute()


def address(host: str) -> str:
    """Return a host's address: node N has the Nth of the subnet, the head the last."""
    return SUBNET.replace("0/24", "254" if host == HEAD else host.removeprefix("node"))


def inside() -> str:
    """Return the host of the cluster on which this process runs, or an empty string outside a cluster."""
    # The host's name in a variable would be wrong: mpirun copies the head's variables to the workers.
    return socket.gethostname() if os.environ.get(INSIDE) else ""


def write(cluster: Cluster) -> None:
    """Replace cluster.json."""
    atomic.write_json(folder() / FILE, dataclasses.asdict(cluster))


def current() -> Cluster | None:
    """Return the cluster that is up, or None."""
    try:
        values = json.loads((folder() / FILE).read_text())
        if not inside():
            pid, began = values["head"]
            # Any user can make the folder where all users may write.
            if folder().lstat().st_uid != os.getuid() or resources.start_ticks(pid) != began:
                return None
    except (OSError, ValueError):
        return None
    return Cluster(**values | {"links": {node: Link(**link) for node, link in values["links"].items()}})


def require() -> Cluster:
    """Return the cluster that is up; raise LabError if there is none."""
    if cluster := current():
        return cluster
    raise LabError("no cluster is up; start one with `labs cluster up --nodes 2`")


def format_bandwidth(bandwidth: str) -> str:
    """Return "100 Mbit/s" for "100mbit"."""
    return bandwidth.replace("kbit", " kbit/s").replace("mbit", " Mbit/s").replace("gbit", " Gbit/s")


def bits_per_second(bandwidth: str) -> float:
    """Return a bandwidth such as "100mbit" as bits per second, infinity for UNLIMITED; raise LabError for others."""
    if bandwidth == UNLIMITED:
        return float("inf")
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg])bit", bandwidth.lower())
    if match and 1e5 <= (bits := float(match[1]) * {"k": 1e3, "m": 1e6, "g": 1e9}[match[2]]) <= 1e11:
        return bits
    raise LabError(f"{bandwidth!r} is not a bandwidth from 100kbit to 100gbit; write 100mbit, 1gbit or {UNLIMITED}")


def slowest_link() -> str:
    """Return the slowest link of the cluster in which this process runs, or an empty string outside a cluster."""
    cluster = current() if inside() else None
    return str(min(cluster.links.values(), key=lambda link: bits_per_second(link.bandwidth))) if cluster else ""


def set_bandwidth(bandwidth: str, nodes: Iterable[str] = ()) -> None:
    """Set the bandwidth of the links of some nodes, by default of all; raise LabError if that fails."""
    command = [sys.executable, "-P", "-m", "labs", "cluster", "link", *nodes, "--bandwidth", bandwidth]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(done.stderr.strip().removeprefix(ERROR_PREFIX))


@contextlib.contextmanager
def restore_links() -> Iterator[None]:
    """Restore every link's bandwidth after the block; raise LabError if another run's block sets links."""
    links, lock = require().links, FileLock(folder() / CHANGES)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise LabError("another run sets the links of this cluster; wait for its end") from None
    with lock, contextlib.ExitStack() as at_exit:
        for node, link in links.items():
            at_exit.callback(set_bandwidth, link.bandwidth, [node])
        yield
