"""Folders of the kit on this machine; an environment variable moves each of them."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from labs.run.text import printable

ROOT = Path(__file__).resolve().parent.parent.parent


def data_dir() -> Path:
    """Return the folder of the data sets: `LABS_DATA`, else `data/` of the clone."""
    return Path(os.environ.get("LABS_DATA") or ROOT / "data")


def results_dir() -> Path:
    """Return the results folder: `LABS_RESULTS`, else `results/` of the clone."""
    return Path(os.environ.get("LABS_RESULTS") or ROOT / "results")


def cache_dir() -> Path:
    """Return the folder of files that can be regenerated at any time: `LABS_CACHE`, else `.cache/` beside the data."""
    return Path(os.environ.get("LABS_CACHE") or data_dir() / ".cache")


def python_path() -> str:
    """Return PYTHONPATH with the clone first, so that programs find `labs` from any working directory."""
    return os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


def search_path() -> str:
    """Return PATH with the folders of `tc` and Slurm's daemons, which an ordinary user's often lacks."""
    return f"{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin"


def temporary_dir() -> Path:
    """Return the folder of temporary files that runs share: `TMPDIR`, which `labs run` replaces for its workers."""
    return Path(os.environ.get("LABS_TMPDIR") or tempfile.gettempdir())


def labs_command() -> str:
    """Return how the user called `labs`, for commands to paste: "labs", ".venv/bin/labs", or with a full path."""
    program = Path(sys.argv[0])
    if program.name != "labs":  # `python -m labs`, a worker, a notebook.
        program = Path(sys.executable).parent / "labs"
    if not program.exists():
        return shlex.join([sys.executable, "-m", "labs"])
    on_path = shutil.which("labs")
    return "labs" if on_path and os.path.samefile(on_path, program) else shlex.quote(str(program))


def shown(path: Path) -> str:
    """Return a path as text that a terminal can show, relative to the clone if it is inside."""
    return printable(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)
