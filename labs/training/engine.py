"""The program of a resident worker: `python -m labs.training.engine THREADS`, an engine of ipyparallel."""

import os
import sys

from ipyparallel.engine.app import IPEngine

from labs.run import environment, worker
from labs.training import layout

OPTIONS = ["--mpi", "--IPEngine.init_mpi=", "--IPEngine.enable_nanny=False", "--timeout=60", "--log-level=40"]


def main() -> None:
    """Be a worker, with the GPU, the threads and the settings of a run's worker, but wait for a notebook's calls."""
    worker.end_with_launcher()
    rank, size = (int(os.environ[f"OMPI_COMM_WORLD_LOCAL_{name}"]) for name in ("RANK", "SIZE"))
    layout.pin_gpu(rank, size)
    layout.set_threads(int(sys.argv[1]), size)
    environment.set_horovod_defaults(layout.has_nccl())
    IPEngine.launch_instance(OPTIONS)


if __name__ == "__main__":
    main()
