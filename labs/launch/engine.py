"""The program of a resident worker: an engine of ipyparallel that mpirun starts, and what it does for a notebook.

    python -m labs.launch.engine
"""

from __future__ import annotations

import importlib
import os
import signal
import threading
from collections.abc import Sequence

from labs.run import command_line, heartbeat, lifeline, worker
from labs.run.catalogue import load_lab
from labs.run.errors import LabError

END_EXCHANGES = signal.SIGUSR2
"""The signal that ends all exchanges, on all ranks."""
OPTIONS = ["--mpi", "--IPEngine.init_mpi=", "--IPEngine.enable_nanny=False", "--timeout=60", "--log-level=40"]
"""MPI numbers the engines: an engine's number is its rank. MPI starts before Horovod, so that Horovod can start again
after a shutdown, which MPI cannot."""
STALL_LIMITS = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "30", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "60"}
"""Horovod's limits for cells in which ranks wait for different exchanges; a run has its own."""

_had_horovod = False
"""Whether Horovod was running when END_EXCHANGES came."""


def main() -> None:
    """Be a worker: with the GPU, the threads and the end of a run's worker, but waiting for a notebook's calls."""
    lifeline.end_with_launcher()
    os.environ.pop(lifeline.SUPERVISOR, None)  # Heartbeats for it would be printed below the notebook's cells.
    # Before there are threads: all inherit the mask, and only the one below takes the signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, [END_EXCHANGES])
    from ipyparallel.engine.app import IPEngine

    from labs.training import devices

    rank, size = (int(os.environ[f"OMPI_COMM_WORLD_LOCAL_{name}"]) for name in ("RANK", "SIZE"))
    devices.pin_gpu(rank, size)
    devices.set_threads(devices.share_of_cores(size))
    threading.Thread(target=_end_exchanges, name="labs-end-exchanges", daemon=True).start()
    IPEngine.launch_instance(OPTIONS)


def _end_exchanges() -> None:
    """Shut Horovod down at each signal: a rank that waits in an exchange runs no Python in its main thread."""
    import horovod.tensorflow as hvd

    global _had_horovod
    while signal.sigwait([END_EXCHANGES]):
        _had_horovod = _had_horovod or hvd.is_initialized()
        hvd.shutdown()


def restart_horovod() -> None:
    """Start Horovod again if it was running; all ranks must call this."""
    import horovod.tensorflow as hvd

    global _had_horovod
    if _had_horovod or hvd.is_initialized():
        hvd.shutdown()
        hvd.init()  # Horovod: exchanges were ended by a shutdown, on all ranks.
    _had_horovod = False


def introduce() -> tuple[int, int]:
    """Return this worker's process and its number of TensorFlow threads."""
    import tensorflow as tf

    return os.getpid(), tf.config.threading.get_intra_op_parallelism_threads()


def train(module: str, arguments: Sequence[str]) -> None:
    """Run a lab as one of its workers, from the state of a new process.

    Args:
        module: The lab's module.
        arguments: What follows the lab's name on the command line.

    Raises:
        LabError: The lab raised one.
        RuntimeError: The lab raised another exception; the message also says where the training was.
    """
    import horovod.tensorflow as hvd
    import tensorflow as tf

    lab = load_lab(importlib.import_module(module))
    config, options = command_line.parse(lab, arguments)
    environment, earlier = dict(os.environ), heartbeat.current()
    for name in STALL_LIMITS:
        os.environ.pop(name, None)
    hvd.shutdown()  # The run starts Horovod with its own settings.
    tf.keras.backend.clear_session()  # Keras counts layers from 1 again, for their names.
    try:
        lab.run(config, options)
    except BaseException as problem:
        if worker.is_echo(problem):
            raise
        where = heartbeat.error_prefix() if heartbeat.current() is not earlier else ""
        kind, cause = (LabError if isinstance(problem, LabError) else RuntimeError), worker.explained(problem)
        raise kind(where + worker.cause_of(cause)) from problem
    finally:
        os.environ.clear()
        os.environ.update(environment)


if __name__ == "__main__":
    main()
