"""Rendezvous of Gloo workers that mpirun has started: the server that horovodrun would otherwise run."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator

from labs.run.errors import NO_GLOO, LabError


@contextlib.contextmanager
def gloo_rendezvous(node: str) -> Iterator[None]:
    """Run the rendezvous server of Gloo's workers while the block calls `hvd.init`; without Gloo, do nothing.

    Horovod 0.28.1 cannot negotiate over MPI and exchange tensors over Gloo, although it accepts
    HOROVOD_CPU_OPERATIONS=gloo from mpirun's workers: its process sets then have no Gloo context, and the first
    all-reduce is a segmentation fault. So here Gloo does both. Its workers find each other through a small server.

    Args:
        node: Name of this worker's node.

    Raises:
        LabError: horovodrun has started the workers over Gloo, but the run asks for MPI; or Horovod has no Gloo.
    """
    if os.environ.get("HOROVOD_CPU_OPERATIONS") == "mpi" and "HOROVOD_GLOO_RENDEZVOUS_ADDR" in os.environ:
        raise LabError("horovodrun has started these workers over Gloo, which MPI cannot follow; "
                       "add --backend gloo, or start them with `labs run`")
    if os.environ.get("HOROVOD_CPU_OPERATIONS") != "gloo" or "HOROVOD_GLOO_RENDEZVOUS_ADDR" in os.environ:
        yield  # Not over Gloo, or horovodrun runs the server.
        return
    import horovod.tensorflow as hvd
    from mpi4py import MPI

    if not hvd.gloo_built():  # The first all-reduce would be a segmentation fault.
        raise LabError(f"{NO_GLOO}; leave --backend gloo out, or see `labs check`")
    os.environ["HOROVOD_CONTROLLER"] = "gloo"

    world = MPI.COMM_WORLD
    if world.size == 1:
        yield
        return
    nodes = world.allgather(node)
    server = _server(len(set(nodes)) > 1) if world.rank == 0 else None
    os.environ |= _environment(world.rank, nodes, *world.bcast(server and server.server_address))
    yield
    world.Barrier()  # No worker needs the server any more.
    if server:
        server.shutdown()
        server.server_close()


def _server(several_nodes: bool):
    """Start Horovod's rendezvous server; it listens on the loopback interface unless there are several nodes."""
    from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

    address = socket.gethostbyname(socket.gethostname()) if several_nodes else "127.0.0.1"
    server = RendezvousHTTPServer((address, 0), RendezvousHandler, verbose=0)
    threading.Thread(target=server.serve_forever, name="labs-gloo", daemon=True).start()
    return server


def _environment(rank: int, nodes: list[str], address: str, port: int) -> dict[str, str]:
    """Return the environment variables that tell Horovod a worker's ranks, sizes and rendezvous server."""
    local = [other for other, node in enumerate(nodes) if node == nodes[rank]]
    local_rank = local.index(rank)
    # The workers with this local rank, one per node that has as many workers.
    cross = [ranks[local_rank] for node in dict.fromkeys(nodes)
             if len(ranks := [other for other, its in enumerate(nodes) if its == node]) > local_rank]
    variables = {
        "HOROVOD_HOSTNAME": nodes[rank], "HOROVOD_RANK": rank, "HOROVOD_SIZE": len(nodes),
        "HOROVOD_LOCAL_RANK": local_rank, "HOROVOD_LOCAL_SIZE": len(local),
        "HOROVOD_CROSS_RANK": cross.index(rank), "HOROVOD_CROSS_SIZE": len(cross),
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": address, "HOROVOD_GLOO_RENDEZVOUS_PORT": port,
    }
    if len(local) == len(nodes):
        variables["HOROVOD_GLOO_IFACE"] = os.environ.get("HOROVOD_GLOO_IFACE", "lo")
    return {name: str(value) for name, value in variables.items()}
