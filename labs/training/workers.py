"""The workers of a run: start, layout, GPU, threads, seeds, and what they must agree on."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import platform
import re
import socket
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd
import numpy as np
import psutil
import tensorflow as tf
from tensorflow.python.util import _pywrap_util_port

import labs
from labs.run import fields, heartbeat, naming, stop
from labs.run.errors import LabError
from labs.run.fields import Role
from labs.run.options import Options
from labs.run.paths import shown
from labs.run.run_lock import hold
from labs.run.text import plural
from labs.slurm import allocation
from labs.training import checkpoint, hvd_ops, rendezvous, timeline


@dataclasses.dataclass(frozen=True)
class Layout:
    """The workers as Horovod sees them, never as somebody asked for them."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    nodes: int
    hosts: tuple[str, ...]
    """The node of every rank."""
    threads: int
    """TensorFlow's threads of one worker."""
    gpus: int
    """GPUs that all workers use together."""
    backend: str
    """What carries the gradients: "NCCL", "MPI" or "Gloo"; "none" for one worker."""

    def __str__(self) -> str:
        parts = ((self.size, "worker"), (self.nodes, "node"), (self.threads, "thread"), (self.gpus, "GPU"))
        workers, nodes, threads, gpus = (plural(count, noun) for count, noun in parts)
        return f"{workers} on {nodes}, {threads} each, {gpus}, {self.backend}"


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
        return fields.value(self.config, Role.SEED)

    def say(self, text: str) -> None:
        """Print a line for the student: once, not once per worker."""
        if self.rank == 0:
            print(text, flush=True)


@contextlib.contextmanager
def start(config: Any, options: Options = Options()) -> Iterator[Job]:  # noqa: B008 - frozen
    """Start this worker and claim the folder of its run; the worker is watched until the block ends.

    Args:
        config: The lab's Config, with a field of type `fields.Seed`; the lab's name is that of its module.
        options: Where the run lives.

    Raises:
        LabError: The run's name is taken, or another run holds it.
    """
    fields.check(config)
    lab, threads = naming.lab_name(config), fields.value(config, Role.THREADS, default=0)
    environment = settings(config) | timeline.settings(options.timeline)
    layout = init(fields.value(config, Role.SEED), options.stall_seconds, environment, threads)
    with contextlib.ExitStack() as claims:
        claims.enter_context(stop.handle_signal())
        problem = name = None
        if layout.rank == 0:
            try:
                name = claims.enter_context(hold(lab, options, layout.size))
            except LabError as error:
                problem = str(error)
        name, problem = hvd_ops.broadcast_object((name, problem))
        if problem:
            raise LabError(problem)
        folder = naming.results_root(options) / lab / name
        claims.callback(heartbeat.begin(folder / "places", layout.rank, options.stall_seconds, _node()).close)
        job = Job(lab, name, folder, config, options, layout, time.time())
        job.say(f"{lab}: {layout}; {shown(folder)}")
        if options.timeline:
            timeline.start(folder)
            claims.callback(timeline.stop)
        yield job


HOROVOD_VARIABLES: dict[Role, tuple[str, Callable[[Any], Any]]] = {
    Role.BACKEND: ("HOROVOD_CPU_OPERATIONS", str),
    Role.CYCLE_TIME: ("HOROVOD_CYCLE_TIME", float),
    Role.FUSION_THRESHOLD: ("HOROVOD_FUSION_THRESHOLD", lambda megabytes: int(megabytes * 2**20)),
}
"""For fields that a lab's Config may have: the variable that Horovod reads when it starts."""


def settings(config: Any) -> dict[str, str]:
    """Return the environment variables that set Horovod up as a Config says; see `labs.run.fields`."""
    values = {role: fields.value(config, role) for role in HOROVOD_VARIABLES}
    return {variable: str(convert(values[role])) for role, (variable, convert) in HOROVOD_VARIABLES.items()
            if values[role] is not None}


def init(seed: int, stall_seconds: float = Options.stall_seconds, environment: Mapping[str, str] | None = None,
         threads: int = 0) -> Layout:
    """Start Horovod and give this worker its GPU, its share of the cores and its seed.

    Args:
        seed: Equal on all workers, so that they build equal models and equal splits.
        stall_seconds: See Options.
        environment: See `settings`.
        threads: TensorFlow's threads of one worker; 0: its share of the node's cores.
    """
    os.environ.update(environment or {})
    # Horovod: its own stall check (rank 0 alone runs it) covers what comes before the first step.
    os.environ.setdefault("HOROVOD_STALL_CHECK_TIME_SECONDS", str(int(stall_seconds)))
    os.environ.setdefault("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", str(int(2 * stall_seconds)))
    for name, value in _fast_settings().items():  # Horovod: read by `hvd.init`.
        os.environ.setdefault(name, value)
    horovod_settings()  # Refused now if at all: a run must not lose its record to them.
    # Horovod: find the other workers; from here on rank, size and local_rank are known.
    with rendezvous.gloo_rendezvous(_node()):
        hvd.init()
    if hvd.size() == 1:
        allocation.check_step()
    gpu = _pin_gpu(hvd.local_rank(), hvd.local_size())
    threads = _set_threads(threads or _share_of_cores(hvd.local_size()))
    # Horovod: equal seeds for equal models; what must differ between workers (dropout) adds the rank itself.
    tf.keras.utils.set_random_seed(seed)
    # Dropout's random numbers come from a variable that can be set again when a run is resumed.
    tf.keras.backend.experimental.enable_tf_random_generator()
    return layout(gpu, threads)


def _fast_settings() -> dict[str, str]:
    """Return what has been measured to be faster than Horovod's own, for workers that mpirun has started."""
    size, here = (int(os.environ.get(f"OMPI_COMM_WORLD_{what}", "1")) for what in ("SIZE", "LOCAL_SIZE"))
    nccl = hvd.nccl_built() and tf.config.list_physical_devices("GPU")
    if size == 1 or nccl or os.environ.get("HOROVOD_CPU_OPERATIONS") == "gloo":
        return {}
    fusion = {"HOROVOD_FUSION_THRESHOLD": str(labs.FUSION_MB * 2**20)} if here == size else {}
    return {"HOROVOD_CYCLE_TIME": str(labs.CYCLE_MS), **fusion}


def horovod_settings() -> dict[str, float]:
    """Return Horovod's cycle in milliseconds, and the MiB of tensors that it sends as one message.

    Raises:
        LabError: A variable that sets one holds no plain number (`labs.PLAIN`).
    """
    return {"cycle_time_ms": _number("HOROVOD_CYCLE_TIME", "1"),
            "fusion_threshold_mb": _number("HOROVOD_FUSION_THRESHOLD", str(128 * 2**20)) / 2**20}


def _number(variable: str, default: str) -> float:
    told = os.environ.get(variable, default)
    if not re.fullmatch(labs.PLAIN[variable], told):
        raise LabError(f"{variable} is {told!r}, and no plain number; unset it")
    return float(told)


def layout(gpu: str | None, threads: int) -> Layout:
    """Return the workers as Horovod sees them now; all of them call it.

    Args:
        gpu: Name of this worker's GPU, if it has one.
        threads: TensorFlow's threads of this worker.
    """
    everyone = hvd_ops.gather_object((_node(), gpu))
    hosts = tuple(host for host, _ in everyone)
    return Layout(
        rank=hvd.rank(),
        size=hvd.size(),
        local_rank=hvd.local_rank(),
        local_size=hvd.local_size(),
        nodes=len(set(hosts)),
        hosts=hosts,
        threads=threads,
        gpus=len({pair for pair in everyone if pair[1]}),
        backend=backend(),
    )


def backend() -> str:
    """Return what carries the gradients between the workers: "NCCL", "MPI", "Gloo", or "none" for one worker."""
    if hvd.size() == 1:
        return "none"
    if hvd.nccl_built() and tf.config.get_visible_devices("GPU"):
        return "NCCL"
    return "MPI" if hvd.mpi_enabled() else "Gloo"


def _node() -> str:
    """Name the node: Slurm's name for it where there is one, since two of its nodes may be one machine."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def _pin_gpu(local_rank: int, local_size: int) -> str | None:
    """Give this worker one GPU of its node and return its name; without a GPU, None."""
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return None
    if 1 < len(gpus) < local_size:
        raise LabError(f"{local_size} workers on a node with {len(gpus)} GPUs; start at most one worker per GPU")
    # Horovod: one GPU per worker, by its rank on the node. A scheduler may show each worker its own GPU alone.
    gpu = gpus[local_rank % len(gpus)]
    with contextlib.suppress(RuntimeError):  # Set before, in this process: a notebook runs several labs.
        tf.config.set_visible_devices(gpu, "GPU")
        tf.config.experimental.set_memory_growth(gpu, True)
    return f"{gpu.name} {os.environ.get('CUDA_VISIBLE_DEVICES', '')}".strip()


def _share_of_cores(local_size: int) -> int:
    """Divide the node's cores among its workers: threads of one worker that wait for another's cost both."""
    cores = len(os.sched_getaffinity(0))
    total = psutil.cpu_count() or cores
    return cores if cores < total and local_size > 1 else max(1, cores // local_size)


def _set_threads(threads: int) -> int:
    """Give TensorFlow so many threads and return how many it has."""
    with contextlib.suppress(RuntimeError):  # TensorFlow has begun already, with an earlier run's threads.
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        # As many again for operations that do not wait for each other: more would let a worker of one thread use two
        # cores, alone as fast as two workers, and two workers get into each other's way.
        tf.config.threading.set_inter_op_parallelism_threads(threads)
    return tf.config.threading.get_intra_op_parallelism_threads() or threads


def versions() -> dict[str, str]:
    """Return the versions on which a result depends."""
    packages = ("tensorflow", "keras", "horovod", "numpy", "pillow", "labs")
    return {"python": platform.python_version()} | {package: metadata.version(package) for package in packages}


def machine() -> dict[str, Any]:
    """Describe the node of this worker."""
    return {
        "host": socket.gethostname(),
        "system": platform.platform(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "onednn": _pywrap_util_port.IsMklEnabled(),  # TensorFlow's own word: what it made of the variable.
        **horovod_settings(),
        "huge_pages_mb": _huge_pages_mb(),
        "gpus": [tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name)
                 for gpu in tf.config.list_physical_devices("GPU")],
    }


def _huge_pages_mb() -> float:
    """Return how many MiB of this process lie in huge pages: the C library may ask, and the kernel need not give."""
    try:
        told = re.search(r"^AnonHugePages: +(\d+) kB", Path("/proc/self/smaps_rollup").read_text(), re.MULTILINE)
    except OSError:  # A kernel that does not tell.
        return 0.0
    return int(told[1]) / 1024 if told else 0.0


def checksums(model: tf.keras.Model) -> dict[str, int]:
    """Return a CRC-32 of every weight and every variable of the optimizer, by name."""
    variables = [*model.variables, *model.optimizer.variables]
    return {f"{place} {variable.name}": zlib.crc32(checkpoint.as_array(variable).reshape(-1).view(np.uint8).data)
            for place, variable in enumerate(variables)}


def agree(**items: Any) -> None:
    """Stop if an item is not the same on all workers: before step 1 the cheap moment to find it.

    Args:
        items: By name: the config, the versions, a digest of the data manifest ...; anything that JSON can hold.

    Raises:
        LabError: Names the item, the first rank that differs from rank 0, and both values.
    """
    mine = {name: json.dumps(value, sort_keys=True, default=str) for name, value in items.items()}
    # Horovod: the workers were started apart; nothing but this says that they were started alike.
    everyone = hvd_ops.gather_object(mine)
    for name in mine:
        for rank, theirs in enumerate(everyone):
            if theirs[name] != everyone[0][name]:
                raise LabError(f"workers differ in {name}: {_difference(everyone[0][name], theirs[name], rank)}; "
                               "start all workers from the same clone, data and command line")


def _difference(zero: str, other: str, rank: int) -> str:
    """Say where two JSON texts differ: the keys that differ, of dictionaries."""
    a, b = json.loads(zero), json.loads(other)
    if isinstance(a, dict) and isinstance(b, dict):
        keys = [key for key in sorted({*a, *b}) if a.get(key) != b.get(key)]
        a, b = {key: a.get(key) for key in keys[:3]}, {key: b.get(key) for key in keys[:3]}
    return f"rank 0 has {a}, rank {rank} has {b}"


def compare_weights(model: tf.keras.Model, when: str) -> None:
    """Stop if the workers' weights or optimizer states are not equal bit for bit.

    Raises:
        LabError: Names the first variable that differs and the rank that holds the other value.
    """
    mine = checksums(model)
    everyone = hvd_ops.gather(mine.values())
    ranks, columns = np.nonzero(everyone != everyone[0])
    if len(ranks):
        variable = list(mine)[columns[0]]
        raise LabError(f"workers hold different weights {when}: {variable!r} of rank {ranks[0]} is not rank 0's; "
                       "the run is worthless: was the optimizer wrapped and the initial state broadcast?")
