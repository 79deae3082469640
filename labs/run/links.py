"""The links of a cluster made by `labs cluster`: their bandwidth, and how a run sets it.

`labs cluster link` changes the kernel's settings; this module runs it as a program.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator

from filelock import Timeout

from labs.run import cluster_state
from labs.run.errors import ERROR_PREFIX, LabError, quoted
from labs.run.lock import Lock

BANDWIDTH = re.compile(r"(\d+(?:\.\d+)?)(kbit|mbit|gbit)")
LATENCY = re.compile(r"(\d+(?:\.\d+)?)(us|ms)")
BITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
SECONDS = {"us": 1e-6, "ms": 1e-3}
CHANGES = "changes.lock"
"""Held in the cluster's folder by the process that sets links for a study or a sweep."""


def bits_per_second(bandwidth: str) -> float:
    """Return a bandwidth such as "100mbit" as bits per second; infinity for cluster_state.UNLIMITED.

    Raises:
        LabError: It cannot be read, or is outside 100 kbit/s to 100 Gbit/s.
    """
    if bandwidth == cluster_state.UNLIMITED:
        return float("inf")
    if match := BANDWIDTH.fullmatch(bandwidth.lower()):
        bits = float(match[1]) * BITS[match[2]]
        if 1e5 <= bits <= 1e11:
            return bits
    raise LabError(f"{quoted(bandwidth)} is not a bandwidth from 100kbit to 100gbit; write 100mbit, 1gbit or "
                   f"{cluster_state.UNLIMITED}")


def seconds(latency: str) -> float:
    """Return a latency such as "200us" as seconds; 0 for an empty string.

    Raises:
        LabError: It cannot be read, or is longer than 10 s.
    """
    if not latency:
        return 0.0
    match = LATENCY.fullmatch(latency.lower())
    if match and (duration := float(match[1]) * SECONDS[match[2]]) <= 10:
        return duration
    raise LabError(f"{quoted(latency)} is not a latency up to 10 s; write 200us or 5ms")


def label() -> str:
    """Return the slowest link of the cluster in which this process runs; an empty string outside a cluster."""
    cluster = cluster_state.current() if cluster_state.inside() else None
    if cluster is None:
        return ""
    return str(min(cluster.links.values(), key=lambda link: (bits_per_second(link.bandwidth), -seconds(link.latency))))


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
        ended = f"`labs cluster link` ended with code {done.returncode}"
        raise LabError(done.stderr.strip().removeprefix(ERROR_PREFIX) or ended)


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Restore every link's bandwidth after the block; one process at a time may be in it.

    Raises:
        LabError: No cluster is up, or another run sets its links: each would measure the other's.
    """
    cluster_state.require()
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(Lock(cluster_state.folder() / CHANGES).hold())
        except Timeout:
            raise LabError("another run sets the links of this cluster; wait until it ends, or start a second cluster "
                           "with LABS_CLUSTER=DIR") from None
        before = defaultdict(list)
        for node, link in cluster_state.require().links.items():
            before[link.bandwidth].append(node)
        try:
            yield
        finally:
            for bandwidth, nodes in before.items():
                set_bandwidth(bandwidth, nodes)
