"""Defaults with which plain `horovodrun -np 2 python FILE` and `mpirun -np 2 python FILE` train, as `labs run` does."""

from __future__ import annotations

import os
from pathlib import Path
from shlex import quote

from steps import SetupError

PATCHES = {
    # Open MPI 5 takes the longer spelling only, older ones take both.
    "mpi_run.py": ("'-bind-to none', '-map-by slot'", "'--bind-to none', '--map-by slot'"),
    # Called by its path, it would find neither mpirun nor the environment's Python.
    "launch.py": ("def run_commandline():\n", "def run_commandline():\n    os.environ['PATH'] = "
                  "f\"{os.path.dirname(sys.executable)}:{os.environ.get('PATH', os.defpath)}\"\n"),
}
"""In horovod/runner: a text and its replacement."""
SETTINGS = {
    # Otherwise a worker that waits takes the core from one that computes.
    "openmpi-mca-params.conf": "mpi_yield_when_idle = 1\n",
    # Otherwise Open MPI binds a worker to one core, and counts no hyperthreads.
    "prte-mca-params.conf": "hwloc_default_binding_policy = none\nrmaps_default_mapping_policy = :oversubscribe\n",
}
"""In etc/: defaults of Open MPI; options and variables override them."""
SCRIPT = """\
#!/bin/sh
# Written by setup/launchers.py: Open MPI refuses root, the only user in many containers, without these variables.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
PATH={bin}"${{PATH:+:$PATH}}" exec {program} "$@"
"""


def patch_horovod(site: Path) -> None:
    """Change the installed horovodrun, in an environment's site-packages.

    Raises:
        SetupError: This version of Horovod has other code.
    """
    for name, (text, replacement) in PATCHES.items():
        path = site / "horovod" / "runner" / name
        before = path.read_text()
        if text not in before:
            raise SetupError(f"setup/launchers.py does not know this Horovod: {path} has no {text.strip()}")
        _replace(path, before.replace(text, replacement))


def set_up_mpi(folder: Path) -> None:
    """Set the defaults of the Open MPI that pip or uv has installed into an environment."""
    for name, settings in SETTINGS.items():
        _replace(folder / "etc" / name, settings)
    for name in ("mpirun", "mpiexec"):
        path = folder / "bin" / name
        program = path.with_name(f"{name}.openmpi")
        if not path.read_bytes().startswith(b"#!"):  # Not ours of an earlier `make env`.
            path.replace(program)
        _replace(path, SCRIPT.format(bin=quote(str(path.parent)), program=quote(str(program))))
        path.chmod(0o755)


def _replace(path: Path, text: str) -> None:
    """Write a new file: uv's are hard links into its cache, and so belong to other environments, too."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text)
    os.replace(new, path)
