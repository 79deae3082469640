"""Checks before anything is installed: each obstacle is one line with its cure."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import suitable
from steps import SetupError

NEEDED_GB = 4.5  # The environment takes 3.1 GB, a build of Horovod 0.5 GB; the rest is a margin.
PROMPT = "prompt = 'labs'"  # What `venv --prompt labs` writes.
NAMES = {"Open MPI": "openmpi", "Intel": "intelmpi", "HYDRA": "mpich"}  # As `mpirun --version` prints them.


def check_machine() -> None:
    """Raise SetupError unless this is Linux with a Python that can create virtual environments."""
    if reason := suitable.another_system() or suitable.obstacle():
        raise SetupError(reason)


def check_space(*folders: Path) -> None:
    """Raise SetupError if a folder's disk has less than LABS_ENV_GB (4.5) gigabytes free."""
    needed = float(os.environ.get("LABS_ENV_GB") or NEEDED_GB)
    for folder in folders:
        existing = next(path for path in (folder, *folder.resolve().parents) if path.exists())
        free = shutil.disk_usage(existing).free / 1e9
        if free < needed:
            raise SetupError(
                f"{free:.1f} GB are free for {folder}, {needed:g} are needed; free some space"
                " (LABS_ENV_GB=3.5 lowers the limit)"
            )


def check_compiler() -> None:
    """Raise SetupError unless the C++ compiler supports C++17, TensorFlow's standard."""
    compiler = os.environ.get("CXX") or "g++"
    if shutil.which(compiler) is None:
        raise SetupError(f"there is no C++ compiler ({compiler}) for Horovod; apt-get install g++ or set CXX")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "try.cc")
        source.write_text("#include <variant>\nint main() { return std::variant<int>(0).index(); }\n")
        command = [compiler, "-std=c++17", str(source), "-o", str(Path(folder, "try"))]
        tried = subprocess.run(command, capture_output=True)
    if tried.returncode:
        raise SetupError(f"{compiler} does not compile C++17, which TensorFlow needs; install g++ 9 or newer")


@dataclasses.dataclass(frozen=True)
class Mpi:
    """An MPI: name and version, as in `openmpi-5.0.11`, and the folder of mpicxx and mpirun."""

    version: str
    folder: Path


def find_mpi(path: str) -> Mpi:
    """Return the MPI on a search path.

    Raises:
        SetupError: mpicxx or mpirun is missing.
    """
    compiler, launcher = (_program(name, path) for name in ("mpicxx", "mpirun"))
    output = subprocess.run([launcher, "--version"], capture_output=True, text=True).stdout
    name = next((short for text, short in NAMES.items() if text in output), "mpi")
    number = re.search(r"\d+\.\d+(\.\d+)?", output)
    return Mpi(f"{name}-{number[0] if number else 'unknown'}", Path(compiler).parent)


def _program(name: str, path: str) -> str:
    if program := shutil.which(name, path=path):
        return program
    raise SetupError(
        f"there is no {name} on PATH; load the site's MPI (module load openmpi), or use the kit's: make env MPI=own, or"
        " in an environment for GPUs pip install -c setup/constraints.txt -e .[mpi]"
    )



def check_folder(venv: Path) -> None:
    """Raise SetupError if VENV= names a folder with anything but the kit's environment, which would be deleted."""
    settings = venv / "pyvenv.cfg"
    ours = venv.name.startswith(".venv") or (settings.exists() and PROMPT in settings.read_text())
    if not ours and (venv.is_file() or (venv.is_dir() and any(venv.iterdir()))):
        raise SetupError(f"VENV={venv} holds other files, which would be deleted; name a new folder")
