"""The program of a resident worker: an engine of ipyparallel that mpirun starts, and what it does for a notebook.

    python -m labs.launch.engine THREADS
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from labs.run import command_line, environment, worker
from labs.run.catalogue import load_lab

OPTIONS = ["--mpi", "--IPEngine.init_mpi=", "--IPEngine.enable_nanny=False", "--timeout=60", "--log-level=40"]
"""An engine's number is its rank in MPI."""


def main() -> None:
    """Be a worker, with the GPU, the threads and the settings of a run's worker, but wait for a notebook's calls."""
    worker.end_with_launcher()
    from ipyparallel.engine.app import IPEngine

    from labs.training import layout

    rank, size = (int(os.environ[f"OMPI_COMM_WORLD_LOCAL_{name}"]) for name in ("RANK", "SIZE"))
    layout.pin_gpu(rank, size)
    layout.set_threads(int(sys.argv[1]), size)
    environment.set_horovod_defaults(layout.has_nccl())
    IPEngine.launch_instance(OPTIONS)


def introduce() -> tuple[int, int]:
    """Return this worker's process and its number of TensorFlow threads."""
    import tensorflow as tf

    return os.getpid(), tf.config.threading.get_intra_op_parallelism_threads()


def train(module: str, arguments: Sequence[str]) -> None:
    """Run a lab as one of its workers, from the state of a new process; its arguments are those of `labs run`."""
    import tensorflow as tf

    lab = load_lab(importlib.import_module(module))
    config, options = command_line.parse_run(lab, arguments)
    tf.keras.backend.clear_session()  # Keras counts layers from 1 again, for their names.
    lab.run(config, options)


if __name__ == "__main__":
    main()
