"""The nodes that mpirun will use: Slurm's allocation, or the host file that mpirun's own variables name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from labs.run.errors import LabError
from labs.slurm import allocation

VARIABLES = ("PRTE_MCA_prte_default_hostfile", "PRTE_MCA_default_hostfile", "OMPI_MCA_orte_default_hostfile")
"""Where Open MPI 5 and 4 look for a host file that no option names."""


def slots(environ: Mapping[str, str] = os.environ) -> dict[str, int]:
    """Return how many workers mpirun's host file gives each node; nothing where no variable names such a file.

    Raises:
        LabError: The file cannot be read.
    """
    found: dict[str, int] = {}
    for variable in VARIABLES:
        if variable not in environ:
            continue
        try:
            lines = Path(environ[variable]).read_text().splitlines()
        except OSError as problem:
            raise LabError(f"{variable} names {environ[variable]}: {problem.strerror}; unset it, or name a host file"
                           ) from None
        for line in lines:
            host, *settings = line.partition("#")[0].split() or [""]
            if host:  # A host that stands there twice has the slots of both lines, as with mpirun.
                told = re.search(r"slots=(\d+)", " ".join(settings))
                found[host] = found.get(host, 0) + (int(told[1]) if told else 1)
        return found
    return found


def nodes() -> int:
    """Return over how many nodes mpirun may spread the workers."""
    granted = allocation.current()
    return granted.nodes if granted else len(slots()) or 1
