"""The program of a resident worker: an engine of ipyparallel that mpirun starts, and what it does for a notebook.

    python -m labs.training.engine THREADS
"""

import importlib
import os
import sys
from collections.abc import Sequence

import tensorflow as tf
from ipyparallel.engine.app import IPEngine

from labs.run import command_line, environment, worker
from labs.run.catalogue import load_lab
from labs.training import layout

OPTIONS = ["--mpi", "--IPEngine.init_mpi=", "--IPEngine.enable_nanny=False", "--timeout=60", "--log-level=40"]
"""An engine's number is its rank in MPI."""


def main() -> None:
    """Be a worker, with the GPU, the threads and the settings of a run's worker, but wait for a notebook's calls."""
    worker.end_with_launcher()
    rank, size = (int(os.environ[f"OMPI_COMM_WORLD_LOCAL_{name}"]) for name in ("RANK", "SIZE"))
    layout.pin_gpu(rank, size)
    layout.set_threads(int(sys.argv[1]), size)
    environment.set_horovod_defaults(layout.has_nccl())
    IPEngine.launch_instance(OPTIONS)


def train(module: str, arguments: Sequence[str]) -> None:
    """Run a lab as one of its workers, from the state of a new process; its arguments are those of `labs run`."""
    lab = load_lab(importlib.import_module(module))
    config, options = command_line.parse(lab, arguments)
    tf.keras.backend.clear_session()  # Keras counts layers from 1 again, for their names.
    lab.run(config, options)


if __name__ == "__main__":
    main()
