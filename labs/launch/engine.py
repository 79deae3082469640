"""The program of a resident worker: an engine of ipyparallel that mpirun starts, and what it does for a notebook.

    python -m labs.launch.engine THREADS
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Sequence

from labs.run import command_line, lifeline
from labs.run.catalogue import load_lab

END_EXCHANGES = signal.SIGUSR2
"""The signal that ends the exchanges in which ranks wait for each other: there they run no Python."""
OPTIONS = ["--mpi", "--IPEngine.init_mpi=", "--IPEngine.enable_nanny=False", "--timeout=60", "--log-level=40"]
"""An engine's number is its rank in MPI. MPI starts before Horovod, which then can stop and start again."""
STALL_LIMITS = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "15", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "30"}
"""How long ranks wait in an exchange that others do not join; a run has its own limits."""


def main() -> None:
    """Be a worker, with the GPU, the threads and the end of a run's worker, but wait for a notebook's calls."""
    lifeline.end_with_launcher()
    # Before there are other threads: all inherit the mask, and only the one below takes the signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, [END_EXCHANGES])
    threading.Thread(target=_end_exchanges, daemon=True).start()
    from ipyparallel.engine.app import IPEngine

    from labs.training import devices

    rank, size = (int(os.environ[f"OMPI_COMM_WORLD_LOCAL_{name}"]) for name in ("RANK", "SIZE"))
    devices.pin_gpu(rank, size)
    devices.set_threads(int(sys.argv[1]) or devices.share_of_cores(size))
    IPEngine.launch_instance(OPTIONS)


def _end_exchanges() -> None:
    """Stop Horovod at each signal; all waiting ranks then get an exception."""
    while signal.sigwait([END_EXCHANGES]):
        import horovod.tensorflow as hvd

        hvd.shutdown()


def restart_horovod() -> None:
    """Start Horovod again, without unfinished exchanges; all ranks must call this."""
    import horovod.tensorflow as hvd

    hvd.shutdown()
    hvd.init()  # Horovod: it has no other way to forget what a rank sent before it failed.


def introduce() -> tuple[int, int]:
    """Return this worker's process and its number of TensorFlow threads."""
    import tensorflow as tf

    return os.getpid(), tf.config.threading.get_intra_op_parallelism_threads()


def train(module: str, arguments: Sequence[str]) -> None:
    """Run a lab as one of its workers, from the state of a new process.

    Args:
        module: The lab's module.
        arguments: What follows the lab's name on the command line.
    """
    import horovod.tensorflow as hvd
    import tensorflow as tf

    lab = load_lab(importlib.import_module(module))
    config, options = command_line.parse(lab, arguments)
    environment = dict(os.environ)
    for name in STALL_LIMITS:
        os.environ.pop(name, None)
    hvd.shutdown()  # The run starts Horovod with its own settings.
    tf.keras.backend.clear_session()  # Keras counts layers from 1 again, for their names.
    try:
        lab.run(config, options)
    finally:
        os.environ.clear()
        os.environ.update(environment)


if __name__ == "__main__":
    main()
