"""This user's cluster, made by `labs cluster`: its state, which is cluster.json in a folder, and its links' bandwidth.

`labs cluster link` changes the kernel's settings; this module runs it as a program.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from labs.run import atomic, resources
from labs.run.errors import ERROR_PREFIX, LabError, quoted

FOLDER = "LABS_CLUSTER"
"""The variable that names the cluster's folder; a second cluster needs a second folder."""
INSIDE = "LABS_INSIDE_CLUSTER"
"""Set in every process of the cluster; its host name says on which host it runs."""
HEAD = "head"
"""The host from which runs are started, as from a login node. It has no link whose bandwidth is set."""
SUBNET = "10.77.0.0/24"
UNLIMITED = "unlimited"
BITS = {"k": 1e3, "m": 1e6, "g": 1e9}
CHANGES = "changes.lock"
"""Held in the cluster's folder by the process that sets links for a study or a sweep."""


@dataclasses.dataclass(frozen=True)
class Link:
    """A node's link to the switch, the same in both directions."""

    bandwidth: str = UNLIMITED
    """Such as "100mbit"; or UNLIMITED."""
    up: bool = True

    def __str__(self) -> str:
        return self.bandwidth + ", down" * (not self.up)


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The nodes of a cluster that is up."""

    pids: dict[str, int]
    """PID of the process that holds each host's namespaces, in the cluster's PID namespace."""
    cores: dict[str, list[int]]
    """The processor cores on which each node's processes may run."""
    links: dict[str, Link]
    """Each node's link."""
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
    return Path(environ.get(FOLDER) or default).expanduser().absolute()


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
        pid, began = map(int, Path.read_text(folder() / "head.pid").split())
        process = psutil.Process(pid)
        # A later process may have the same number.
        return process if resources.start_ticks(pid) == began else None
    except (OSError, ValueError, psutil.NoSuchProcess):
        return None


def record_head(head: psutil.Process) -> None:
    """Record the PID of the cluster's first process, as seen outside."""
    atomic.write_text(folder() / "head.pid", f"{head.pid} {resources.start_ticks(head.pid)}\n")


def current() -> Cluster | None:
    """Return the cluster that is up, or None."""
    if not inside() and head_process() is None:
        return None
    try:
        values = json.loads(Path.read_text(folder() / "cluster.json"))
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


def format_bandwidth(bandwidth: str) -> str:
    """Return "100 Mbit/s" for "100mbit"."""
    return re.sub(r"^([\d.]+)([kmg])bit$",
                  lambda match: f"{match[1]} {match[2].replace('m', 'M').replace('g', 'G')}bit/s", bandwidth)


def bits_per_second(bandwidth: str) -> float:
    """Return a bandwidth such as "100mbit" as bits per second; infinity for UNLIMITED.

    Raises:
        LabError: The text is not a bandwidth, or is outside 100 kbit/s to 100 Gbit/s.
    """
    if bandwidth == UNLIMITED:
        return float("inf")
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg])bit", bandwidth.lower())
    bits = float(match[1]) * BITS[match[2]] if match else 0.0
    if 1e5 <= bits <= 1e11:
        return bits
    raise LabError(f"{quoted(bandwidth)} is not a bandwidth from 100kbit to 100gbit; write 100mbit, 1gbit or "
                   f"{UNLIMITED}")


def slowest_link() -> str:
    """Return the slowest link of the cluster in which this process runs; an empty string outside a cluster."""
    cluster = current() if inside() else None
    return str(min(cluster.links.values(), key=lambda link: bits_per_second(link.bandwidth))) if cluster else ""


def set_bandwidth(bandwidth: str, nodes: Iterable[str] = ()) -> None:
    """Set the bandwidth of the links of some nodes, by default of all.

    Args:
        bandwidth: Such as "100mbit", or "unlimited".
        nodes: Their names.

    Raises:
        LabError: No cluster is up, the value is unknown, or the kernel refuses it.
    """
    command = [sys.executable, "-P", "-m", "labs", "cluster", "link", *nodes, "--bandwidth", bandwidth]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(done.stderr.strip().removeprefix(ERROR_PREFIX)
                       or f"`labs cluster link` ended with code {done.returncode}")


@contextlib.contextmanager
def restore_links() -> Iterator[None]:
    """Restore every link's bandwidth after the block; one process at a time may be in it.

    Raises:
        LabError: No cluster is up, or another run sets its links: each would measure the other's.
    """
    require()
    with contextlib.ExitStack() as at_exit:
        try:
            at_exit.enter_context(FileLock(folder() / CHANGES, timeout=0))
        except Timeout:
            raise LabError("another run sets the links of this cluster; wait until it ends, or start a second cluster "
                           "with LABS_CLUSTER=DIR") from None
        for node, link in require().links.items():
            at_exit.callback(set_bandwidth, link.bandwidth, [node])
        yield
