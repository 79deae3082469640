"""Start of a run: the environment, Horovod, this worker's devices and seed, the run lock and the heartbeat."""

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
from labs.run.errors import LabError
from labs.run.fields import Options
from labs.run.paths import format_path
from labs.run.run_lock import hold
from labs.training import hvd_ops, layout
from labs.training.layout import Layout


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
        return self.layout.size

    @property
    def rank(self) -> int:
        return self.layout.rank

    @property
    def seed(self) -> int:
        return self.config.seed

    def print_once(self, text: str) -> None:
        """Print a line once, not once per worker."""
        if self.rank == 0:
            terminal.write(f"{text}\n", sys.stdout)


@contextlib.contextmanager
def start(config: Any, options: Options = Options()) -> Iterator[Job]:  # noqa: B008 - frozen
    """Start this worker and lock its run's folder; the worker's heartbeat runs until the block ends."""
    fields.check(config)
    environment = {variable: str(convert(value)) for name, (variable, convert) in fields.HOROVOD_FIELDS.items()
                   if (value := getattr(config, name, None)) is not None}
    if options.timeline:  # Allows it to start later; Horovod's writer then takes a core.
        environment["HOROVOD_TIMELINE"] = "DYNAMIC"
    found = init(config.seed, options.stall_seconds, environment, getattr(config, "threads", 0),
                 getattr(config, "backend", "auto"))
    with contextlib.ExitStack() as at_exit:
        at_exit.enter_context(worker.handle_signal())
        lab = fields.lab_name(config)
        # Horovod: rank 0 alone locks the folder.
        name = hvd_ops.call_on_rank_0(lambda: at_exit.enter_context(hold(lab, options, found.size, config)))
        job = Job(lab, name, options.results_root / lab / name, config, options, found, time.monotonic())
        beats = heartbeat.begin(job.folder / heartbeat.FOLDER, job.rank, options.stall_seconds, layout.node_name())
        at_exit.callback(beats.close)
        job.print_once(f"{lab}: {found}; {format_path(job.folder)}")
        if options.timeline:
            hvd.start_timeline(str(job.folder / hvd_ops.TIMELINE))
            at_exit.callback(hvd.stop_timeline)
        yield job


def init(seed: int, stall_seconds: float = Options.stall_seconds, environment: Mapping[str, str] | None = None,
         threads: int = 0, backend: str = "auto") -> Layout:
    """Start Horovod, give this worker its GPU, its share of the cores and its seed, and return the layout.

    Args:
        environment: The variables that Horovod is to read.
        threads: TensorFlow's threads per worker; 0: its share of the node's cores.
    """
    if hvd.is_initialized():  # In a notebook, by an earlier run.
        has = run_environment.horovod_environment()
        if late := [name for name, value in (environment or {}).items() if has.get(name) != value]:
            raise LabError(f"Horovod has started in this process without this run's {', '.join(late)}; start it in a "
                           "new process: labs.run.local.run(lab, config, workers=1)")
    else:
        run_environment.refuse_harmful()
        os.environ.update(environment or {})
        # Horovod: it warns of what waits; `labs run` has switched its end off, and ends the run itself.
        os.environ.setdefault("HOROVOD_STALL_CHECK_TIME_SECONDS", str(int(stall_seconds)))
        os.environ.setdefault("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", str(int(2 * stall_seconds)))
        run_environment.set_horovod_defaults(backend in ("auto", "nccl") and layout.has_nccl())
    run_environment.restore_keras(tf.keras.backend)  # A notebook may have loaded TensorFlow before the kit.
    # Horovod: find the other workers; from here on rank, size and local_rank are known.
    with gloo_rendezvous(layout.node_name()):
        hvd.init()
    if hvd.size() == 1:
        _refuse_lone_training()
    gpu = layout.pin_gpu(hvd.local_rank(), hvd.local_size())
    threads = layout.set_threads(threads, hvd.local_size())
    # Horovod: equal seeds for equal models; what must differ between workers (dropout) adds the rank itself.
    tf.keras.utils.set_random_seed(seed)
    return layout.current_layout(gpu, threads, backend)


def _refuse_lone_training() -> None:
    """Refuse to train alone as one of several workers that a launcher has started."""
    resources.refuse_separate_tasks()
    size = os.environ.get("OMPI_COMM_WORLD_SIZE", "1")
    if size != "1":
        raise LabError(f"OMPI_COMM_WORLD_SIZE is {size}, but Horovod finds one worker: the variable is left over from "
                       "another run, or mpirun is not that of Horovod's MPI; unset it, and see `labs check`")


@contextlib.contextmanager
def gloo_rendezvous(node: str) -> Iterator[None]:
    """Run the rendezvous server of Gloo's workers while the block calls `hvd.init`; without Gloo, do nothing.

    Horovod 0.28.1 cannot negotiate over MPI and exchange tensors over Gloo: its process sets then have no Gloo context,
    and the first all-reduce is a segmentation fault. So Gloo does both; its workers find each other through a server.
    """
    # Horovod: horovodrun has a server of its own.
    if os.environ.get("HOROVOD_CPU_OPERATIONS") != "gloo" or "HOROVOD_GLOO_RENDEZVOUS_ADDR" in os.environ:
        yield
        return
    if not hvd.gloo_built():  # The first all-reduce would be a segmentation fault.
        raise LabError("this Horovod was built without Gloo; leave --backend gloo out, or see `labs check`")
    os.environ["HOROVOD_CONTROLLER"] = "gloo"
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    if world.size == 1:
        yield
        return
    with contextlib.ExitStack() as at_exit:
        os.environ |= _gloo_environment(world, node, at_exit)
        yield
        world.Barrier()  # No worker needs the server any more.


def _gloo_environment(world, node: str, at_exit: contextlib.ExitStack) -> dict[str, str]:
    """Start the server on rank 0; return the variables that tell Horovod a worker's ranks, sizes and the server."""
    from horovod.runner.common.util.secret import HOROVOD_SECRET_KEY, SECRET_LENGTH
    from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

    local = world.Split(color=world.allgather(node).index(node), key=world.rank)
    # The workers with this local rank: one on each node that has more workers than this number.
    cross = world.Split(color=local.rank, key=world.rank)
    variables = {"HOROVOD_HOSTNAME": node} | {
        f"HOROVOD_{scope}{name}": str(value) for scope, those in (("", world), ("LOCAL_", local), ("CROSS_", cross))
        for name, value in (("RANK", those.rank), ("SIZE", those.size))}
    # Horovod: as built by this kit, the server asks for a key, which horovodrun would give to its workers.
    variables[HOROVOD_SECRET_KEY] = os.environ[HOROVOD_SECRET_KEY] = world.bcast(secrets.token_hex(SECRET_LENGTH))
    address = None
    if world.rank == 0:
        listening = "127.0.0.1" if local.size == world.size else socket.gethostbyname(socket.gethostname())
        server = at_exit.enter_context(RendezvousHTTPServer((listening, 0), RendezvousHandler, verbose=0))
        threading.Thread(target=server.serve_forever, name="labs-gloo", daemon=True).start()
        at_exit.callback(server.shutdown)
        address = server.server_address
    host, port = world.bcast(address)
    variables |= {"HOROVOD_GLOO_RENDEZVOUS_ADDR": host, "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port)}
    return variables | ({"HOROVOD_GLOO_IFACE": os.environ.get("HOROVOD_GLOO_IFACE", "lo")}
                        if local.size == world.size else {})
