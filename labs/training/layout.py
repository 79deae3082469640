"""Worker layout: rank, size, local rank, nodes, threads, GPUs and the communication backend of a run."""

from __future__ import annotations

import dataclasses
import os
import socket

import horovod.tensorflow as hvd
import tensorflow as tf

from labs.run.text import plural
from labs.training import hvd_ops


@dataclasses.dataclass(frozen=True)
class Layout:
    """The workers of a run as Horovod sees them, which may differ from the request."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    nodes: int
    hosts: tuple[str, ...]
    """The node of each rank."""
    threads: int
    """TensorFlow's threads per worker."""
    gpus: int
    """GPUs that all workers use together."""
    backend: str
    """What exchanges the gradients: "NCCL", "MPI" or "Gloo"; "none" for one worker."""

    def __str__(self) -> str:
        counts = ((self.size, "worker"), (self.nodes, "node"), (self.threads, "thread"), (self.gpus, "GPU"))
        workers, nodes, threads, gpus = (plural(count, noun) for count, noun in counts)
        exchange = f", gradients by {self.backend}" if self.size > 1 else ""
        return f"{workers} on {nodes}, {threads} each, {gpus if self.gpus else 'no GPU'}{exchange}"


def current_layout(gpu: str | None, threads: int) -> Layout:
    """Return the layout of the workers that Horovod has now; every worker must call it.

    Args:
        gpu: Name of this worker's GPU, if it has one.
        threads: TensorFlow's threads of this worker.
    """
    gpus_by_rank = hvd_ops.gather_object((node_name(), gpu))
    hosts = tuple(host for host, _ in gpus_by_rank)
    return Layout(
        rank=hvd.rank(),
        size=hvd.size(),
        local_rank=hvd.local_rank(),
        local_size=hvd.local_size(),
        nodes=len(set(hosts)),
        hosts=hosts,
        threads=threads,
        gpus=len({pair for pair in gpus_by_rank if pair[1]}),
        backend=backend(),
    )


def backend() -> str:
    """Return what exchanges the gradients: "NCCL", "MPI", "Gloo", or "none" for one worker."""
    if hvd.size() == 1:
        return "none"
    if hvd.nccl_built() and tf.config.get_visible_devices("GPU"):
        return "NCCL"
    return "MPI" if hvd.mpi_enabled() else "Gloo"


def node_name() -> str:
    """Return this node's name: Slurm's name if there is one, since two Slurm nodes may be one machine."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()
