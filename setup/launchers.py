"""Launcher defaults: plain `horovodrun -np 2 python FILE` and `mpirun -np 2 python FILE` train as `labs run` does.

What horovodrun itself needs for that is in setup/horovod.patch.
"""

from __future__ import annotations

import os
from pathlib import Path
from shlex import quote

SETTINGS = {
    # Otherwise a waiting worker takes the core from a computing one.
    "openmpi-mca-params.conf": "mpi_yield_when_idle = 1\n",
    # Otherwise Open MPI binds a worker to one core and does not count hyperthreads.
    "prte-mca-params.conf": "hwloc_default_binding_policy = none\nrmaps_default_mapping_policy = :oversubscribe\n",
}
"""By file in etc/: Open MPI's defaults; options and variables override them."""
SCRIPT = """\
#!/bin/sh
# Written by setup/launchers.py: Open MPI refuses root, the only user in many containers, without these variables.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
PATH={bin}"${{PATH:+:$PATH}}" exec {program} "$@"
"""


def set_up_mpi(folder: Path) -> None:
    """Set the defaults of the Open MPI that pip or uv has installed into an environment."""
    for name, settings in SETTINGS.items():
        _replace(folder / "etc" / name, settings)
    for name in ("mpirun", "mpiexec"):
        path = folder / "bin" / name
        program = path.with_name(f"{name}.openmpi")
        if not path.read_bytes().startswith(b"#!"):  # Not the script from an earlier `make env`.
            path.replace(program)
        _replace(path, SCRIPT.format(bin=quote(str(path.parent)), program=quote(str(program))))
        path.chmod(0o755)


def _replace(path: Path, text: str) -> None:
    """Replace the file instead of changing it: uv hard-links its files, so other environments share them."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text)
    os.replace(new, path)
