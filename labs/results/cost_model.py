"""The alpha-beta cost model of an all-reduce.

A message of S bytes takes latency + S / bandwidth. Source of the collectives' costs: Thakur, Rabenseifner, Gropp,
"Optimization of collective communication operations in MPICH", IJHPCA 19(1), 2005.

The four collectives have the same arguments: `nbytes` to reduce, per worker; `n` workers; `latency`, the seconds of an
empty message; `bandwidth`, the bytes per second of one worker's link.
"""

import math
from collections.abc import Callable
from typing import Literal


def ring_seconds(nbytes: float, n: int, latency: float, bandwidth: float) -> float:
    """Return the seconds of a ring: 2 (n - 1) (latency + nbytes / (n bandwidth)). None sends fewer bytes."""
    return 2 * (n - 1) * (latency + nbytes / (n * bandwidth))


def naive_seconds(nbytes: float, n: int, latency: float, bandwidth: float) -> float:
    """Return the seconds of summing on rank 0: 2 (n - 1) (latency + nbytes / bandwidth). No library uses this."""
    return 2 * (n - 1) * (latency + nbytes / bandwidth)


def tree_seconds(nbytes: float, n: int, latency: float, bandwidth: float) -> float:
    """Return the seconds of a binomial tree's reduce and broadcast: 2 ceil(log2 n) (latency + nbytes / bandwidth)."""
    return 2 * math.ceil(math.log2(n)) * (latency + nbytes / bandwidth)


def halving_seconds(nbytes: float, n: int, latency: float, bandwidth: float) -> float:
    """Return the seconds of Rabenseifner's halving and doubling: a tree's messages, a ring's bytes; for n = 2^k."""
    return 2 * math.ceil(math.log2(n)) * latency + 2 * (n - 1) / n * nbytes / bandwidth


ALGORITHMS: dict[str, Callable[[float, int, float, float], float]] = {
    "ring": ring_seconds, "tree": tree_seconds, "halving": halving_seconds,
    "best": lambda *message: min(cost(*message) for cost in (ring_seconds, tree_seconds, halving_seconds)),
}
FUSED_BYTES = 64 * 2**20
"""The most bytes that Horovod sends as one message: HOROVOD_FUSION_THRESHOLD, 64 MiB in most releases."""
BACKWARD = 2 / 3
"""Share of a step that is its backward pass: it makes two products of the weights' size, the forward pass one."""
OVERLAP = 0.7
"""Share of the communication that can hide behind the backward pass. No source publishes it. It is below 1, because the
first gradients must be computed before any can be sent, and the last are sent when nothing is left to compute. It meets
all published rows within 10 percentage points (data/reference/published_scaling.csv)."""
LOCAL_LATENCY, LOCAL_BANDWIDTH = 5e-6, 10e9
"""Latency and bytes per second between the GPUs of one node over PCI Express 3 x16, whose peak is 15.75 GB/s."""


def allreduce_seconds(nbytes: float, workers: int, latency: float, bandwidth: float, workers_per_node: int = 1,
                      algorithm: Literal["ring", "tree", "halving", "best"] = "best") -> float:
    """Return the seconds of an all-reduce over nodes, in messages of at most FUSED_BYTES.

    The workers of a node, which share its link, first sum over their bus (a ring), then the nodes sum over the network.
    """
    local = min(workers_per_node, workers)
    nodes = math.ceil(workers / local)
    messages = max(1, math.ceil(nbytes / FUSED_BYTES))
    size = nbytes / messages
    between = ALGORITHMS[algorithm](size, nodes, latency, bandwidth) if nodes > 1 else 0.0
    return messages * (between + ring_seconds(size, local, LOCAL_LATENCY, LOCAL_BANDWIDTH))


def exposed_seconds(communication: float, step: float, overlap: float = OVERLAP) -> float:
    """Return the seconds of an all-reduce that are not hidden behind the backward pass of one worker's step.

    The backward pass, BACKWARD of the step, hides at most the share `overlap`, and no more than its own length.
    """
    return max((1 - overlap) * communication, communication - BACKWARD * step)
