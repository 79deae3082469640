"""The nodes that mpirun will use: those of Slurm's allocation, or of the host file that mpirun's variables name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from labs.run import atomic, paths
from labs.run.errors import LabError
from labs.slurm import allocation

VARIABLES = ("PRTE_MCA_prte_default_hostfile", "PRTE_MCA_default_hostfile", "OMPI_MCA_orte_default_hostfile")
"""Where Open MPI 5 and 4 look for the default host file."""


def slots(environ: Mapping[str, str] = os.environ) -> dict[str, int]:
    """Return how many workers mpirun's host file allows on each node; empty if no variable names such a file.

    Raises:
        LabError: The file cannot be read.
    """
    by_host: dict[str, int] = {}
    for variable in VARIABLES:
        if variable not in environ:
            continue
        try:
            lines = atomic.read_text(paths.named(environ[variable], variable)).splitlines()
        except OSError as problem:
            raise LabError(f"{variable} names {environ[variable]}: {problem.strerror}; unset it, or name a host file"
                           ) from None
        for line in lines:
            host, *settings = line.partition("#")[0].split() or [""]
            if host:  # A host that is listed twice has the slots of both lines, as with mpirun.
                count = re.search(r"slots=(\d+)", " ".join(settings))
                by_host[host] = by_host.get(host, 0) + (int(count[1]) if count else 1)
        return by_host
    return by_host


def nodes() -> int:
    """Return the number of nodes over which mpirun may spread the workers."""
    granted = allocation.current()
    return granted.nodes if granted else len(slots()) or 1
