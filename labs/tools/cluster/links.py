"""The links of a cluster's nodes, whose bandwidth is set by Linux' traffic control (tc).

A token bucket (tbf) at each end limits each direction. A link that is down drops every packet, like a broken port of
the switch: the node's interface stays up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from filelock import FileLock

from labs.run import cluster_state as state
from labs.run.errors import LabError, quoted
from labs.tools.cluster import enter

WHOLE_PACKET = 72 * 2**10
"""Bytes of the smallest bucket. The kernel hands over packets of up to 64 KiB; a smaller bucket would have it cut them
up, at the cost of the nodes' cores."""
BUCKET_SECONDS = 0.001
"""A fast link's bucket holds what the link sends in this time, since the kernel refills it with delays."""
QUEUE_BYTES = 32 * 2**20
"""A queue so long that no packet is dropped: a drop would add TCP's waiting time to the link's."""


def set_links(nodes: Collection[str], changes: Mapping[str, Any]) -> state.Cluster:
    """Change the links of some nodes, and return the cluster.

    Args:
        nodes: Their names; all nodes, if there are none.
        changes: New values of fields of `Link`; the others stay as they are.

    Raises:
        LabError: No cluster is up, a node or a value is unknown, or the kernel refuses it.
    """
    state.bits_per_second(changes.get("bandwidth", state.UNLIMITED))
    state.require()
    with FileLock(state.folder() / "links.lock", timeout=30):
        cluster = state.require()
        if unknown := [node for node in nodes if node not in cluster.links]:
            raise LabError(f"unknown node {quoted(unknown[0])}; there are: {', '.join(cluster.nodes)}")
        wanted = {node: dataclasses.replace(cluster.links[node], **changes) for node in nodes or cluster.nodes}
        apply(cluster, wanted)
        cluster = dataclasses.replace(cluster, links=cluster.links | wanted)
        state.write(cluster)
    return cluster


def apply(cluster: state.Cluster, links: Mapping[str, state.Link]) -> None:
    """Have the kernel set links at both ends: the node's own interface, and its port of the switch."""
    enter.run_script(cluster, "\n".join(line for node, link in links.items()
                                        for line in _commands(node, cluster.pids[node], link)))


def _commands(node: str, pid: int, link: state.Link) -> Iterator[str]:
    for on_host, device in ((f"nsenter --target={pid} --net ", "eth0"), ("", node)):
        if link.bandwidth == state.UNLIMITED:
            yield f"{on_host}tc qdisc del dev {device} root 2>/dev/null || true"  # There may be none.
        else:
            bits = int(state.bits_per_second(link.bandwidth))
            bucket = int(max(WHOLE_PACKET, bits / 8 * BUCKET_SECONDS))
            yield (f"{on_host}tc qdisc replace dev {device} root tbf rate {bits}bit burst {bucket}b "
                   f"limit {QUEUE_BYTES}b")
    yield f"ip link set {node} {'master switch' if link.up else 'nomaster'}"
