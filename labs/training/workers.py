"""Start of a run: the environment, Horovod, this worker's devices and seed, the run lock and the heartbeat."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd
import tensorflow as tf

from labs.run import environment as run_environment
from labs.run import fields, heartbeat, resources, terminal, worker
from labs.run.errors import NO_GLOO, LabError
from labs.run.options import Options
from labs.run.paths import format_path
from labs.run.run_lock import hold
from labs.training import hvd_ops
from labs.training.layout import (
    Layout,
    current_layout,
    has_nccl,
    node_name,
    pin_gpu,
    set_threads,
)


@dataclasses.dataclass(frozen=True)
class Job:
    """One run of a lab, as one of its workers sees it."""

    lab: str
    name: str
    folder: Path
    config: Any
    options: Options
    layout: Layout
    started: float
    """On the machine's monotonic clock."""
    data: dict[str, Any] = dataclasses.field(default_factory=dict)
    """For the record, from `fit` and `evaluate`: the digests of each subset, by its name."""

    @property
    def size(self) -> int:
        """Number of workers."""
        return self.layout.size

    @property
    def rank(self) -> int:
        """Number of this worker, from 0."""
        return self.layout.rank

    @property
    def seed(self) -> int:
        """The Config's seed."""
        return self.config.seed

    def print_once(self, text: str) -> None:
        """Print a line once, not once per worker."""
        if self.rank == 0:
            terminal.write(f"{text}\n", sys.stdout)


@contextlib.contextmanager
def start(config: Any, options: Options = Options()) -> Iterator[Job]:  # noqa: B008 - frozen
    """Start this worker and lock its run's folder; the worker's heartbeat runs until the block ends.

    Args:
        config: The lab's Config, with a field `seed`; the lab's name is that of its module.

    Raises:
        LabError: The run's name is taken, or another process has locked it.
    """
    fields.check(config)
    lab, threads = fields.lab_name(config), getattr(config, "threads", 0)
    environment = horovod_environment(config)
    if options.timeline:  # Allows it to start later; Horovod's writer then takes a core.
        environment["HOROVOD_TIMELINE"] = "DYNAMIC"
    backend = getattr(config, "backend", "auto")
    layout = init(config.seed, options.stall_seconds, environment, threads, backend)
    with contextlib.ExitStack() as at_exit:
        at_exit.enter_context(worker.handle_signal())
        problem = name = None
        if layout.rank == 0:
            try:
                name = at_exit.enter_context(hold(lab, options, layout.size, config))
            except LabError as error:
                problem = str(error)
        # Horovod: rank 0 alone locks the folder.
        name, problem = hvd_ops.broadcast_object((name, problem))
        if problem:
            raise LabError(problem)
        folder = options.results_root / lab / name
        beats = heartbeat.begin(folder / heartbeat.FOLDER, layout.rank, options.stall_seconds, node_name())
        at_exit.callback(beats.close)
        job = Job(lab, name, folder, config, options, layout, time.monotonic())
        job.print_once(f"{lab}: {layout}; {format_path(folder)}")
        if options.timeline:
            hvd_ops.start_timeline(folder)
            at_exit.callback(hvd_ops.stop_timeline)
        yield job


def horovod_environment(config: Any) -> dict[str, str]:
    """Return the environment variables with which a Config sets Horovod up; see `labs.run.fields`."""
    return {variable: str(convert(value)) for name, (variable, convert) in fields.HOROVOD_FIELDS.items()
            if (value := getattr(config, name, None)) is not None}


def init(seed: int, stall_seconds: float = Options.stall_seconds, environment: Mapping[str, str] | None = None,
         threads: int = 0, backend: str = "auto") -> Layout:
    """Start Horovod, give this worker its GPU, its share of the cores and its seed, and return the layout.

    Args:
        seed: Equal on all workers, so that they build equal models and equal splits.
        threads: TensorFlow's threads per worker; 0: its share of the node's cores.
        backend: What is to carry the gradients, one of `fields.Backend`.

    Raises:
        LabError: The environment breaks a run, or the workers cannot find each other, or share too few GPUs; or
            TensorFlow or Horovod has started in this process with other settings.
    """
    if hvd.is_initialized():
        _refuse_late_settings(environment or {})
    else:  # In a notebook, an earlier run may have left its settings of Horovod.
        run_environment.refuse_harmful()
        os.environ.update(environment or {})
        # Horovod: its own stall check (rank 0 alone runs it) covers the time before the first step.
        os.environ.setdefault("HOROVOD_STALL_CHECK_TIME_SECONDS", str(int(stall_seconds)))
        os.environ.setdefault("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", str(int(2 * stall_seconds)))
        run_environment.set_horovod_defaults(backend in ("auto", "nccl") and has_nccl())
    run_environment.restore_keras(tf.keras.backend)
    # Horovod: find the other workers; from here on rank, size and local_rank are known.
    with gloo_rendezvous(node_name()):
        hvd.init()
    if hvd.size() == 1:
        resources.refuse_separate_tasks()
        _check_launcher()
    gpu = pin_gpu(hvd.local_rank(), hvd.local_size())
    threads = set_threads(threads, hvd.local_size())
    # Horovod: equal seeds for equal models; what must differ between workers (dropout) adds the rank itself.
    tf.keras.utils.set_random_seed(seed)
    return current_layout(gpu, threads, backend)


def _refuse_late_settings(environment: Mapping[str, str]) -> None:
    """Refuse settings that Horovod, which has started in this process, does not have."""
    has = run_environment.horovod_environment()
    if late := [name for name, value in environment.items() if has.get(name) != value]:
        raise LabError(f"Horovod has started in this process without this run's {', '.join(late)}; start it in a new "
                       "process: labs.launch.local.run(lab, config, workers=1)")


def _check_launcher() -> None:
    """Refuse to train alone as one of several workers that a launcher has started."""
    size = os.environ.get("OMPI_COMM_WORLD_SIZE", "1")
    if size != "1":
        raise LabError(f"OMPI_COMM_WORLD_SIZE is {size}, but Horovod finds one worker: the variable is left over from "
                       "another run, or mpirun is not that of Horovod's MPI; unset it, and see `labs check`")


@contextlib.contextmanager
def gloo_rendezvous(node: str) -> Iterator[None]:
    """Run the rendezvous server of Gloo's workers while the block calls `hvd.init`; without Gloo, do nothing.

    Horovod 0.28.1 cannot negotiate over MPI and exchange tensors over Gloo, although it accepts
    HOROVOD_CPU_OPERATIONS=gloo from mpirun's workers: its process sets then have no Gloo context, and the first
    all-reduce is a segmentation fault. So here Gloo does both. Its workers find each other through a small server.

    Raises:
        LabError: horovodrun has started the workers over Gloo, but the run asks for MPI; or Horovod has no Gloo.
    """
    if os.environ.get("HOROVOD_CPU_OPERATIONS") == "mpi" and "HOROVOD_GLOO_RENDEZVOUS_ADDR" in os.environ:
        raise LabError("horovodrun has started these workers with Gloo, but the run asks for MPI; "
                       "add --backend gloo, or start them with `labs run`")
    if os.environ.get("HOROVOD_CPU_OPERATIONS") != "gloo" or "HOROVOD_GLOO_RENDEZVOUS_ADDR" in os.environ:
        yield  # Not over Gloo, or horovodrun runs the server.
        return
    from horovod.runner.common.util.secret import HOROVOD_SECRET_KEY, SECRET_LENGTH
    from mpi4py import MPI

    if not hvd.gloo_built():  # The first all-reduce would be a segmentation fault.
        raise LabError(f"{NO_GLOO}; leave --backend gloo out, or see `labs check`")
    os.environ["HOROVOD_CONTROLLER"] = "gloo"

    world = MPI.COMM_WORLD
    if world.size == 1:
        yield
        return
    nodes = world.allgather(node)
    # Horovod: as built by this kit, the server asks for a key, which horovodrun would give to its workers.
    os.environ[HOROVOD_SECRET_KEY] = world.bcast(secrets.token_hex(SECRET_LENGTH))
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
    # The workers with this local rank: one on each node that has more workers than this number.
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
