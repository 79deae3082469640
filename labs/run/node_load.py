"""How busy a node is: processor, memory and GPUs, in a status file that a thread of one of its workers rewrites."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from labs.run import resources, status_file

SECONDS = 2.0
"""Seconds between two samples."""
SAMPLES = 5
"""Samples over which a GPU's utilization is averaged: none of its kernels may run while a worker reads a batch."""


@dataclasses.dataclass(frozen=True)
class NodeLoad:
    """The load of one node, as one of its workers saw it."""

    host: str
    seconds: float
    """When it was sampled, in seconds since 1970 by the node's clock."""
    cpus: int
    cpu_percent: float
    """Of all cores of the node, whoever uses them."""
    memory_bytes: float
    memory_total_bytes: float
    gpus: dict[str, dict[str, float]]
    """By UUID: the percent of the time in which a kernel ran, and memory_bytes, as far as the driver reports them."""


def read(folder: Path) -> list[NodeLoad]:
    """Return the last load of each node, in the order of their names.

    Where a scheduler shows each worker its own GPU alone, each writes a file, and the node's GPUs are put together.

    Args:
        folder: The heartbeats' folder of a run; it may be missing.
    """
    loads: dict[str, NodeLoad] = {}
    for load in status_file.read_all(folder, "node-*", NodeLoad):
        earlier = loads.get(load.host, load)
        newer = max(earlier, load, key=lambda each: each.seconds)
        loads[load.host] = dataclasses.replace(newer, gpus=earlier.gpus | load.gpus)
    return [loads[host] for host in sorted(loads)]


@contextlib.contextmanager
def follow(folder: Path, rank: int, local_rank: int, host: str) -> Iterator[None]:
    """Write this node's load every two seconds in this block: in its first worker, and where one sees a single GPU."""
    gpus, ended = resources.gpus(), threading.Event()
    if local_rank and len(gpus) != 1:
        yield
        return
    file = status_file.StatusFile(folder / f"node-{rank:05d}")

    def write() -> None:
        percents = [collections.deque[float](maxlen=SAMPLES) for _ in gpus]
        psutil.cpu_percent()  # Of the time since the last call.
        with contextlib.closing(file):
            while not ended.wait(SECONDS):
                with contextlib.suppress(OSError):  # A full disk ends the run elsewhere.
                    file.write(vars(_sample(host, gpus, percents)))
                    file.sync()

    # A thread of its own: a driver that hangs must not stop the heartbeat.
    thread = threading.Thread(target=write, name="labs-node-load", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(SECONDS)


def _sample(host: str, gpus: list, percents: list[collections.deque[float]]) -> NodeLoad:
    memory, states = psutil.virtual_memory(), {}
    for gpu, recent in zip(gpus, percents, strict=True):
        state = resources.gpu_state(gpu)
        if "percent" in state:
            recent.append(state["percent"])
            state["percent"] = sum(recent) / len(recent)
        states[resources.gpu_uuid(gpu)] = state
    return NodeLoad(host, time.time(), psutil.cpu_count() or 1, psutil.cpu_percent(),
                    memory.total - memory.available, memory.total, states)
