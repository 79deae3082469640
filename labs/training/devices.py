"""A worker's devices: its GPU, its share of the node's CPU cores, its threads and their CPU affinity."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import horovod.tensorflow as hvd
import tensorflow as tf

from labs.run import resources
from labs.run.errors import LabError
from labs.training.layout import Layout


def pin_gpu(local_rank: int, local_size: int) -> str | None:
    """Give this worker one GPU of its node, and return the GPU's name; without a GPU, return None.

    Args:
        local_rank: This worker's number on its node.
        local_size: Number of workers on the node.

    Raises:
        LabError: The node has several GPUs, but fewer than workers.
    """
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


def has_nccl() -> bool:
    """Return whether NCCL will exchange the gradients: Horovod is built with it, and this node has a GPU."""
    return bool(hvd.nccl_built() and tf.config.list_physical_devices("GPU"))


def share_of_cores(local_size: int) -> int:
    """Return the number of threads for each of a node's workers, so that they do not compete for cores."""
    mine, launcher = (len(os.sched_getaffinity(process)) for process in (0, os.getppid()))
    if local_size > 1 and mine < launcher:  # The launcher has given each worker its own cores.
        return mine
    return max(1, resources.cores() // local_size)


def set_threads(threads: int) -> int:
    """Set the number of TensorFlow's threads, and return the number it has."""
    with contextlib.suppress(RuntimeError):  # TensorFlow has started already, with an earlier run's threads.
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        # The same number for independent operations. With more, a worker of one thread would use two cores: alone it
        # would be as fast as two workers, and two workers would slow each other down.
        tf.config.threading.set_inter_op_parallelism_threads(threads)
    return tf.config.threading.get_intra_op_parallelism_threads() or threads


@contextlib.contextmanager
def bind_to_cores(layout: Layout) -> Iterator[list[int]]:
    """Keep all threads of this worker on as many cores as it has TensorFlow threads, while the block runs.

    TensorFlow's setting limits the threads of one operation only. Unbound, concurrent operations, the input pipeline
    and Horovod use any free core, so the measurement of a worker with one thread would use the whole node.

    Args:
        layout: The run's layout. Nothing is bound if the node has too few cores, or a scheduler has bound the workers,
            or under a CPU quota: every container of the machine would choose the same cores.

    Yields:
        The cores.
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
