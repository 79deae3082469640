"""mpirun: its command line, the environment of its workers, and how many workers there are cores and GPUs for."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from labs.run import heartbeat, paths, resources, slurm, terminal
from labs.run.errors import LabError
from labs.run.text import plural

PYTHON = [sys.executable, "-P"]
"""Python without the working folder on its module path: a student's keras.py there would hide Keras."""
INSIDE = re.compile(
    r"OMPI_(COMM_WORLD|UNIVERSE|FILE|APP|FIRST|NUM)|(PMIX|PRTE)_(?!MCA)|HOROVOD_(RANK|SIZE|LOCAL|CROSS|CONTROLLER|HOSTNAME|GLOO_RENDEZVOUS)"
)
"""Variables that make a launcher or a worker believe that it is already inside a run."""
EXPORTED = re.compile(r"LABS_|TF_|KERAS_|HOROVOD_|NCCL_|CUDA_|NVIDIA_|XLA_|ONEDNN_|DNNL_|GLIBC_|OMP_|PYTHON"
                      r"|SETUPTOOLS_USE")
"""Variables that the workers need on all nodes."""
HOST_FILES = ("PRTE_MCA_prte_default_hostfile", "PRTE_MCA_default_hostfile", "OMPI_MCA_orte_default_hostfile")
"""Variables in which Open MPI 5 and 4 look for the default host file."""
HOST = re.compile(r"(?!(?:max[_-])?slots)([\w.@-]+)(?:\s+slots\s*=\s*(\d+))?(?:\s+max[_-]slots\s*=\s*\d+)?")
"""A line of a host file."""


def command(workers: int, env: Mapping[str, str] | None = None) -> list[str]:
    """Return mpirun's command line for a number of workers, up to the program.

    Args:
        workers: How many to start.
        env: The workers' environment. With a host file, mpirun passes only the named variables to other nodes;
            under Slurm it passes all of them.

    Raises:
        LabError: There is no mpirun.
    """
    launcher = shutil.which("mpirun", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if launcher is None:
        raise LabError("no mpirun beside this Python or on the PATH; set up the environment with `make env`")
    exports = [word for name in env or () if EXPORTED.match(name) for word in ("-x", name)] if host_slots() else []
    # Horovod: by default mpirun binds a worker to one core, which its threads would have to share; and a rank that
    # waits must yield its core to the ranks that compute.
    flags = ["--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
    if nodes() == 1:
        # The workers share memory. With the TCP component they would also listen on every network, and the component
        # for fabrics (ofi) takes a second of every start to find that there is none.
        flags += ["--mca", "btl", "^tcp,ofi"]
    else:
        # A worker that has lost another one aborts the run. Without the delay, mpirun would report only this abort, not
        # the worker that was lost and why.
        flags += ["--mca", "mpi_abort_delay", "2"]
    # `check_slots` has counted. Open MPI would ignore hyperthreads, and count tasks where a site grants cores.
    return [launcher, *exports, "-np", str(workers), *flags, "--map-by", ":OVERSUBSCRIBE"]


def environment(bar: bool = True) -> dict[str, str]:
    """Return the environment of a run's launcher: this process's, without the variables of a surrounding run.

    Args:
        bar: Whether workers may show a progress bar if there is a terminal.
    """
    env = {name: value for name, value in os.environ.items() if not INSIDE.match(name)}
    env |= {"PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1"}  # File names and output are UTF-8, whatever the locale.
    env["LABS_TERMINAL"] = str(terminal.columns() if bar else 0)
    env["PYTHONPATH"] = paths.python_path()
    if os.geteuid() == 0:  # In a container root is the only user; Open MPI refuses root without both variables.
        env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return env


def supervision() -> dict[str, str]:
    """Return the variable with which workers end with this process and send it their heartbeats."""
    return {heartbeat.SUPERVISOR: f"{socket.gethostname()}:{os.getpid()}"}


def nodes() -> int:
    """Return the number of nodes over which mpirun may spread the workers."""
    granted = resources.allocation()
    return granted.nodes if granted else len(host_slots()) or 1


def host_slots() -> dict[str, int]:
    """Return how many workers mpirun's host file allows on each node; empty if no variable names such a file.

    Raises:
        LabError: The file cannot be read, or has a line other than HOST slots=N.
    """
    variable = next((name for name in HOST_FILES if name in os.environ), None)
    if variable is None:
        return {}
    file = paths.expand_home(os.environ[variable], variable)
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError as problem:
        raise LabError(f"{variable} names {file}: {problem.strerror}; unset it, or name a host file") from None
    counts: dict[str, int] = {}
    for line in filter(None, (line.partition("#")[0].strip() for line in lines)):
        match = HOST.fullmatch(line)
        if not match or match[1] in counts:
            raise LabError(f"{file}: the kit reads only HOST slots=N, once per host, not {line!r}")
        # For a host without slots, mpirun uses its cores. The kit assumes as many as here: nodes are mostly equal.
        counts[match[1]] = int(match[2] or resources.cores())
    return counts


def choose_workers(requested: int | None, oversubscribe: bool) -> int:
    """Return the number of workers to start: as requested, else the allocation's tasks, else one per visible GPU.

    Args:
        requested: The value of --workers, or None.
        oversubscribe: Allow more workers than cores.

    Raises:
        LabError: The request is below one or beyond what there is.
    """
    if requested is not None and requested < 1:
        raise LabError(f"--workers {requested}: a run needs at least one")
    if granted := resources.allocation():
        resources.refuse_separate_tasks()
        if advice := resources.gpu_advice(granted) or _advise_gpus(granted):
            terminal.note(advice)
        return resources.choose_tasks(granted, requested)
    workers = requested or visible_gpus() or 1
    if not oversubscribe:
        check_slots(workers)
    return workers


def _advise_gpus(granted: resources.Allocation) -> str:
    """Return one line on GPUs that the job's nodes have but the job did not request, or an empty string."""
    gpus = slurm.gpus_of_nodes(granted.node_list) if granted.gpus_per_node == 0 else 0
    if gpus == 0:
        return ""
    return (f"each node of this job has {plural(gpus, 'GPU')}, but the job asked for none and trains on CPUs; "
            f"to use them: sbatch --gpus-per-node={gpus} --ntasks-per-node={gpus}")


def slots() -> int:
    """Return how many workers fit: one per core, per CPU that Slurm granted, or per slot of a host file."""
    granted = resources.allocation()
    return granted.cpus if granted else sum(host_slots().values()) or resources.cores()


def check_slots(workers: int) -> None:
    """Refuse more workers than cores.

    Raises:
        LabError: The workers are too many; the message names the number that fits and the option that overrides it.
    """
    if workers > slots():
        quota = "" if resources.allocation() or host_slots() else resources.describe_quota()
        raise LabError(f"{workers} workers on {plural(slots(), 'core')}{quota} would wait for each other; "
                       f"ask for at most {slots()}, or add --oversubscribe")


def visible_gpus() -> int:
    """Return how many GPUs the driver has for a worker, without loading TensorFlow."""
    return len(resources.gpus())
