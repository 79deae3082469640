"""The links of a cluster's nodes: their bandwidth and latency are set by Linux' traffic control (tc).

A token bucket (tbf) at each end limits each direction. A link that is down drops every packet, like a broken port of
the switch: the node's interface stays up.
"""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Collection, Sequence
from typing import Any

from labs.run import cluster_state as state
from labs.run.cluster_state import bits_per_second, seconds
from labs.run.errors import LabError, quoted
from labs.run.run_lock import Lock
from labs.tools.cluster import enter

WHOLE_PACKET = 72 * 2**10
"""Bytes of the smallest bucket. The kernel hands over packets of up to 64 KiB; a smaller bucket would have it cut them
up, at the cost of the nodes' cores."""
BUCKET_SECONDS = 0.001
"""A fast link's bucket holds what the link sends in this time, since the kernel refills it with delays."""
QUEUE_BYTES = 32 * 2**20
"""A queue so long that no packet is dropped: a drop would add TCP's waiting time to the link's."""


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
            raise LabError(f"unknown node {quoted(unknown[0])}; there are: {', '.join(cluster.nodes)}")
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
        LabError: The command failed, although `may_fail` is false.
    """
    done = subprocess.run(enter.command(host, command), capture_output=True, text=True, check=False)
    if done.returncode and not may_fail:
        raise LabError(f"{' '.join(command)} on {host}: {done.stderr.strip()}")
    return done.stderr.strip() if done.returncode else ""
