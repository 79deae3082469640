"""The workers of a run and the machines they use: layout, GPUs, cores and threads, versions and hardware."""

import contextlib
import dataclasses
import os
import platform
import socket
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd
import psutil
import tensorflow as tf

from labs.run import cluster_state, environment, resources
from labs.run.errors import LabError, plural
from labs.training import hvd_ops, keras_internals


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

    @property
    def exchange_device(self) -> str:
        """Where TensorFlow exchanges tensors: the processors' memory for MPI and Gloo; "" is where they are."""
        return "/CPU:0" if self.gpus and self.backend in ("MPI", "Gloo") else ""

    def __str__(self) -> str:
        counts = ((self.size, "worker"), (self.nodes, "node"), (self.threads, "thread"), (self.gpus, "GPU"))
        workers, nodes, threads, gpus = (plural(count, noun) for count, noun in counts)
        exchange = f", gradients by {self.backend}" if self.size > 1 else ""
        return f"{workers} on {nodes}, {threads} each, {gpus if self.gpus else 'no GPU'}{exchange}"


def current_layout(gpu: str | None, threads: int, asked: str = "auto") -> Layout:
    """Return the layout of Horovod's current workers; every worker must call it, with its GPU, threads and backend."""
    by_rank = hvd_ops.gather_object((node_name(), gpu))
    hosts = tuple(host for host, _ in by_rank)
    gpus = [pair for pair in by_rank if pair[1]]
    refuse_shared_gpus(gpus, carrier := backend(asked))
    return Layout(hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), nodes=len(set(hosts)), hosts=hosts,
                  threads=threads, gpus=len(set(gpus)), backend=carrier)


def refuse_shared_gpus(gpus: Sequence[tuple[str, str]], carrier: str) -> None:
    """Raise LabError if workers share a GPU (`gpus`: each one's node and GPU) and use NCCL, which would fail."""
    different = len(set(gpus))
    if different < len(gpus) and carrier == "NCCL" and os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") != "1":
        raise LabError(f"{plural(len(gpus), 'worker')} on {plural(different, 'GPU')}, and NCCL needs one per worker; "
                       "start fewer workers, train on the CPU with CUDA_VISIBLE_DEVICES=, or share a GPU with "
                       "NCCL_MULTI_RANK_GPU_ENABLE=1 (NCCL 2.32; the results are valid, the times are not)")


def backend(asked: str = "auto") -> str:
    """Return what exchanges the gradients: "NCCL", "MPI", "Gloo", or "none" for one worker."""
    if hvd.size() == 1:
        return "none"
    if asked in ("auto", "nccl") and has_nccl():
        return "NCCL"
    if asked == "nccl":
        raise LabError("--backend nccl needs GPUs and a Horovod that is built with NCCL (see `labs check`); mpi and "
                       "gloo exchange through the processors' memory")
    return "MPI" if hvd.mpi_enabled() else "Gloo"


def node_name() -> str:
    """Return this node's name: Slurm's name if there is one, since two Slurm nodes may be one machine."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def pin_gpu(local_rank: int, local_size: int) -> str | None:
    """Assign one of the node's GPUs to this worker; return an identifier of it, or None if there is no GPU."""
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return None
    if 1 < len(gpus) < local_size:
        raise LabError(f"{local_size} workers on a node with {len(gpus)} GPUs; start at most one worker per GPU")
    # Horovod: one GPU per worker, by its rank on the node. A scheduler may show each worker its own GPU alone.
    gpu = gpus[position := local_rank % len(gpus)]
    with contextlib.suppress(RuntimeError):  # TensorFlow has started: it computes on the first GPU that it sees.
        tf.config.set_visible_devices(gpu, "GPU")
    if tf.config.get_visible_devices("GPU")[:1] != [gpu]:
        raise LabError(f"TensorFlow has started in this process, on another GPU than {gpu.name}; start this run in a "
                       "new process: labs.run.local.run(lab, config)")
    import pynvml

    with contextlib.suppress(pynvml.NVMLError, IndexError):
        return pynvml.nvmlDeviceGetUUID(resources.gpus()[position])
    return f"{gpu.name} of worker {local_rank}"


def has_nccl() -> bool:
    """Return whether NCCL will exchange the gradients: Horovod is built with it, and this node has a GPU."""
    return bool(hvd.nccl_built() and tf.config.list_physical_devices("GPU"))


def share_of_cores(local_size: int) -> int:
    """Return the number of threads for each of a node's workers."""
    mine, launcher = (len(os.sched_getaffinity(process)) for process in (0, os.getppid()))
    if local_size > 1 and mine < launcher:  # The launcher has given each worker its own cores.
        return mine
    return max(1, resources.cores() // local_size)


def set_threads(asked: int, local_size: int) -> int:
    """Give TensorFlow the threads that are asked for, or the share of a worker of this node; return what it has."""
    threading = tf.config.threading
    threads = asked or threading.get_intra_op_parallelism_threads() or share_of_cores(local_size)
    # The same number of inter-op threads. With more, a single-threaded worker would use two cores: alone it would be
    # as fast as two workers, and two workers would slow each other down.
    with contextlib.suppress(RuntimeError):  # TensorFlow has started.
        threading.set_intra_op_parallelism_threads(threads)
        threading.set_inter_op_parallelism_threads(threads)
    intra, inter = (has or int(os.environ.get(f"TF_NUM_{kind}OP_THREADS") or len(os.sched_getaffinity(0)))
                    for kind, has in (("INTRA", threading.get_intra_op_parallelism_threads()),
                                      ("INTER", threading.get_inter_op_parallelism_threads())))
    if asked and (intra, inter) != (asked, asked):
        raise LabError(f"TensorFlow has started in this process, with {plural(max(intra, inter), 'thread')}, and this "
                       f"run needs {asked}; start it in a new process: labs.run.local.run(lab, config, workers=1)")
    return intra


@contextlib.contextmanager
def bind_to_cores(layout: Layout) -> Iterator[list[int]]:
    """Keep all threads of this worker on as many cores as it has TensorFlow threads; yield these cores.

    Unbound, the input pipeline and Horovod use any free core. Nothing is bound if the node has too few cores, or a
    scheduler has bound the workers, or under a CPU quota: every container would choose the same cores.
    """
    cores = sorted(os.sched_getaffinity(0))
    mine = cores
    if layout.local_size * layout.threads <= len(cores) <= resources.cpus():
        mine = cores[layout.local_rank * layout.threads :][: layout.threads]
    try:
        _bind(mine)
        yield mine
    finally:
        _bind(cores)


def _bind(cores: list[int]) -> None:
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # The thread has ended.
            os.sched_setaffinity(int(thread.name), cores)


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages on which a result depends."""
    # TensorFlow's package is tensorflow-cpu in some environments.
    ours = {"python": platform.python_version(), "tensorflow": tf.__version__}
    return ours | {package: metadata.version(package) for package in ("keras", "horovod", "numpy", "pillow", "labs")}


def machine() -> dict[str, Any]:
    """Return a description of this worker's node."""
    return {
        "host": socket.gethostname(),
        "system": platform.platform(),
        "link": cluster_state.slowest_link(),
        "cores": resources.cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "onednn": keras_internals.onednn_enabled(),
        "variables": environment.recorded(),
        **environment.horovod_settings(),
        "gpus": [tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name)
                 for gpu in tf.config.list_physical_devices("GPU")],
    }
