"""mpirun's command line, the environment of its workers, and the nodes that it will use."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from labs.run import allocation, atomic, paths, resources, terminal
from labs.run.errors import LabError

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
    # `capacity` has counted the cores. Open MPI would ignore hyperthreads, and count tasks where a site grants cores.
    return [launcher, *exports, "-np", str(workers), *flags, "--map-by", ":OVERSUBSCRIBE"]


def environment(bar: bool = True) -> dict[str, str]:
    """Return the environment of a run's launcher: this process's, without the variables of a surrounding run.

    Args:
        bar: Whether workers may show a progress bar, and fold their lines, if there is a terminal.
    """
    env = {name: value for name, value in os.environ.items() if not INSIDE.match(name)}
    env |= {"PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1"}  # File names and output are UTF-8, whatever the locale.
    env["LABS_TERMINAL"] = ",".join(str((bar and terminal.columns(stream)) or 0) for stream in (sys.stdout, sys.stderr))
    env["PYTHONPATH"] = paths.python_path()
    if os.geteuid() == 0:  # In a container root is the only user; Open MPI refuses root without both variables.
        env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return env


def nodes() -> int:
    """Return the number of nodes over which mpirun may spread the workers."""
    granted = allocation.current()
    return granted.nodes if granted else len(host_slots()) or 1


def host_slots(environ: Mapping[str, str] = os.environ) -> dict[str, int]:
    """Return how many workers mpirun's host file allows on each node; empty if no variable names such a file.

    Raises:
        LabError: The file cannot be read, or has a line other than HOST slots=N.
    """
    variable = next((name for name in HOST_FILES if name in environ), None)
    if variable is None:
        return {}
    file = environ[variable]
    try:
        text = atomic.read_text(paths.named(file, variable))  # Comments may be in any encoding.
    except OSError as problem:
        raise LabError(f"{variable} names {file}: {problem.strerror}; unset it, or name a host file") from None
    counts: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not (line := line.partition("#")[0].strip()):
            continue
        match = HOST.fullmatch(line)
        if not match or match[1] in counts:
            raise LabError(f"{file}, line {number}: the kit reads only HOST slots=N, once per host, not {line!r}")
        # For a host without slots, mpirun uses its cores. The kit assumes as many as here: nodes are mostly equal.
        counts[match[1]] = int(match[2] or resources.cores())
    return counts
