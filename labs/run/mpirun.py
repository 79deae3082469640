"""mpirun: its command line, the environment of its workers, and how many workers there are cores and GPUs for."""

import os
import re
import shutil
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from labs.run import heartbeat, paths, resources, terminal
from labs.run.errors import LabError, plural

PYTHON = [sys.executable, "-P"]
"""Python without the working folder on its module path: a student's keras.py there would hide Keras."""
INSIDE = re.compile(r"OMPI_(COMM_WORLD|UNIVERSE|FILE|APP|FIRST|NUM)|(PMIX|PRTE)_(?!MCA)"
                    r"|HOROVOD_(RANK|SIZE|LOCAL|CROSS|CONTROLLER|HOSTNAME|GLOO_RENDEZVOUS)")
"""Variables that make a launcher or a worker believe that it is already inside a run."""
EXPORTED = re.compile(r"LABS_|TF_|KERAS_|HOROVOD_|NCCL_|CUDA_|NVIDIA_|XLA_|ONEDNN_|DNNL_|OMP_|PYTHON|SETUPTOOLS_USE")
"""Variables that the workers need on all nodes."""
HOST_FILE = "PRTE_MCA_prte_default_hostfile"
"""The variable in which mpirun looks for its host file; `labs cluster` sets it."""


def command(workers: int, env: Mapping[str, str] | None = None) -> list[str]:
    """Return mpirun's command line for a number of workers with this environment, up to the program."""
    launcher = shutil.which("mpirun", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if launcher is None:
        raise LabError("no mpirun beside this Python or on the PATH; set up the environment with `make env`")
    # Under Slurm mpirun passes all variables to other nodes, with a host file only those that are named.
    exports = [word for name in env or () if EXPORTED.match(name) for word in ("-x", name)] if host_slots() else []
    # Horovod: by default mpirun binds a worker to one core, which its threads would have to share; and a rank that
    # waits must yield its core to the ranks that compute.
    flags = ["--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
    # On one node workers share memory: with TCP they would listen on every network, and `ofi` takes a second to start.
    # On several, a worker that has lost another one aborts: without the delay, mpirun would not report the lost one.
    flags += ["--mca", "btl", "^tcp,ofi"] if nodes() == 1 else ["--mca", "mpi_abort_delay", "2"]
    # `choose_workers` has counted. Open MPI would ignore hyperthreads, and count tasks where a site grants cores.
    return [launcher, *exports, "-np", str(workers), *flags, "--map-by", ":OVERSUBSCRIBE"]


def environment(bar: bool = True) -> dict[str, str]:
    """Return the environment of a run's launcher: this process's, without the variables of a surrounding run."""
    env = {name: value for name, value in os.environ.items() if not INSIDE.match(name)}
    env |= {"PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1"}  # File names and output are UTF-8, whatever the locale.
    env |= {"LABS_TERMINAL": str(terminal.columns() if bar else 0), "PYTHONPATH": paths.python_path(),
            heartbeat.SUPERVISOR: f"{socket.gethostname()}:{os.getpid()}"}
    if os.geteuid() == 0:  # In a container root is the only user; Open MPI refuses root without both variables.
        env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return env


def nodes() -> int:
    """Return the number of nodes over which mpirun may spread the workers."""
    granted = resources.allocation()
    return granted.nodes if granted else len(host_slots()) or 1


def host_slots() -> dict[str, int]:
    """Return how many workers mpirun's host file allows on each node, one HOST slots=N a line; empty without a file."""
    lines = Path(os.environ[HOST_FILE]).read_text().splitlines() if HOST_FILE in os.environ else ()
    return {node: int(count) for node, count in (line.split(" slots=") for line in lines)}


def slots() -> int:
    """Return how many workers fit: one per core, per CPU that Slurm granted, or per slot of a host file."""
    granted = resources.allocation()
    return granted.cpus if granted else sum(host_slots().values()) or resources.cores()


def choose_workers(requested: int | None, oversubscribe: bool) -> int:
    """Return the number of workers to start: as requested, else the allocation's tasks, else one per visible GPU."""
    if granted := resources.allocation():
        resources.refuse_separate_tasks()
    if requested is not None and requested < 1:
        raise LabError(f"{requested} workers; ask for at least one")
    workers = requested or (sum(granted.ntasks_per_node) if granted else len(resources.gpus()) or 1)
    if workers <= slots() or (oversubscribe and not granted):
        return workers
    if granted:
        raise LabError(f"--workers {workers}, but job {granted.job_id} has {plural(granted.cpus, 'CPU')} for workers "
                       f"on {plural(granted.nodes, 'node')}; choose another number, or ask for more: "
                       "sbatch -N NODES --ntasks-per-node=WORKERS")
    quota = "" if host_slots() else resources.describe_quota()
    raise LabError(f"{workers} workers on {plural(slots(), 'core')}{quota} would wait for each other; ask for at most "
                   f"{slots()}, or add --oversubscribe")
