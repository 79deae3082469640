"""The links of a cluster's nodes: their bandwidth and latency are set by Linux' traffic control (tc).

A token bucket (tbf) at each end limits each direction. A link that is down drops every packet, like a broken port of
the switch: the node's interface stays up.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import subprocess
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from filelock import Timeout

from labs.cluster import enter, state
from labs.run.errors import LabError, quoted
from labs.run.lock import Lock

BANDWIDTH = re.compile(r"(\d+(?:\.\d+)?)(kbit|mbit|gbit)")
LATENCY = re.compile(r"(\d+(?:\.\d+)?)(us|ms)")
BITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
SECONDS = {"us": 1e-6, "ms": 1e-3}
WHOLE_PACKET = 72 * 2**10
"""Bytes of the smallest bucket. The kernel hands over packets of up to 64 KiB; a smaller bucket would have it cut them
up, at the cost of the nodes' cores."""
BUCKET_SECONDS = 0.001
"""A fast link's bucket holds what the link sends in this time, since the kernel refills it with delays."""
CHANGES = "changes.lock"
"""Held in the cluster's folder by the process that sets links for a study or a sweep."""
QUEUE_BYTES = 32 * 2**20
"""A queue so long that no packet is dropped: a drop would add TCP's waiting time to the link's."""


def bits_per_second(bandwidth: str) -> float:
    """Return a bandwidth such as "100mbit" as bits per second; infinity for UNLIMITED.

    Raises:
        LabError: It cannot be read, or is outside 100 kbit/s to 100 Gbit/s.
    """
    if bandwidth == state.UNLIMITED:
        return float("inf")
    if match := BANDWIDTH.fullmatch(bandwidth.lower()):
        bits = float(match[1]) * BITS[match[2]]
        if 1e5 <= bits <= 1e11:
            return bits
    raise LabError(f"{quoted(bandwidth)} is not a bandwidth from 100kbit to 100gbit; write 100mbit, 1gbit or "
                   f"{state.UNLIMITED}")


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


def bucket(bandwidth: str) -> int:
    """Return the bytes of the token bucket for a bandwidth."""
    return int(max(WHOLE_PACKET, bits_per_second(bandwidth) / 8 * BUCKET_SECONDS))


def set_links(nodes: Collection[str] = (), *, bandwidth: str | None = None, latency: str | None = None,
              up: bool | None = None) -> state.Cluster:
    """Change the links of some nodes, and return the cluster; what is None stays as it is.

    Args:
        nodes: Their names; all nodes, if there are none.
        bandwidth: Such as "100mbit", or "unlimited".
        latency: Such as "200us", or an empty string.
        up: Whether the link carries packets.

    Raises:
        LabError: No cluster is up, a node or a value is unknown, or the kernel refuses it.
    """
    given = {"bandwidth": bandwidth, "latency": latency, "up": up}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    bits_per_second(bandwidth or state.UNLIMITED)
    seconds(latency or "")
    state.require()
    with Lock(state.folder() / "links.lock").hold(patience=30):
        cluster = state.require()
        if unknown := [node for node in nodes if node not in cluster.links]:
            raise LabError(f"no node is called {quoted(unknown[0])}; there are: {', '.join(cluster.nodes)}")
        wanted = {node: dataclasses.replace(cluster.links[node], **changes) for node in nodes or cluster.nodes}
        try:
            for node, link in wanted.items():
                _apply(node, link)
        except LabError:
            for node in wanted:
                _apply(node, cluster.links[node])
            raise
        cluster = dataclasses.replace(cluster, links=cluster.links | wanted)
        state.write(cluster)
    return cluster


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Restore every link's settings after the block; one process at a time may be in it.

    Raises:
        LabError: No cluster is up, or another run sets its links: each would measure the other's.
    """
    state.require()
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(Lock(state.folder() / CHANGES).hold())
        except Timeout:
            raise LabError("another run sets the links of this cluster; wait until it ends, or start a second cluster "
                           "with LABS_CLUSTER=DIR") from None
        before = state.require().links
        try:
            yield
        finally:
            for node, link in before.items():
                set_links([node], **dataclasses.asdict(link))


def _apply(node: str, link: state.Link) -> None:
    """Have the kernel set a node's link at both ends: its own interface, and its port of the switch."""
    for host, device in ((node, "eth0"), (state.HEAD, node)):
        _run(host, ["tc", "qdisc", "del", "dev", device, "root"], may_fail=True)
        parent = ["root"]
        if link.bandwidth != state.UNLIMITED:
            bits = int(bits_per_second(link.bandwidth))
            _run(host, ["tc", "qdisc", "add", "dev", device, "root", "handle", "1:", "tbf", "rate", f"{bits}bit",
                        "burst", f"{bucket(link.bandwidth)}b", "limit", f"{QUEUE_BYTES}b"])
            parent = ["parent", "1:1"]
        if link.latency:
            problem = _run(host, ["tc", "qdisc", "add", "dev", device, *parent, "netem", "delay", link.latency,
                                  "limit", "100000"], may_fail=True)
            if problem:
                raise LabError("this kernel cannot delay packets: it has no netem (sch_netem); leave --latency out"
                               if "qdisc kind is unknown" in problem else f"tc refused the latency: {problem}")
    _run(state.HEAD, ["ip", "link", "set", node, *(["master", "switch"] if link.up else ["nomaster"])])


def _run(host: str, command: Sequence[str], may_fail: bool = False) -> str:
    """Run a command on a host, and return what it says if it fails.

    Raises:
        LabError: It failed, and may not.
    """
    done = subprocess.run(enter.command(host, command), capture_output=True, text=True, check=False)
    if done.returncode and not may_fail:
        raise LabError(f"{' '.join(command)} on {host}: {done.stderr.strip()}")
    return done.stderr.strip() if done.returncode else ""


def label() -> str:
    """Return the slowest link of the cluster in which this process runs; an empty string outside a cluster."""
    cluster = state.current() if state.inside() else None
    if cluster is None:
        return ""
    return str(min(cluster.links.values(), key=lambda link: (bits_per_second(link.bandwidth), -seconds(link.latency))))
