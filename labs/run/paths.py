"""Folders of the kit on this machine; an environment variable moves each of them."""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
import site
import sys
import tempfile
from pathlib import Path

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
    """Return PYTHONPATH for programs that need `labs`: with the clone first, unless it is installed.

    A student's keras.py in the clone would hide Keras, and an empty entry, as in `:/x`, means the working folder.
    """
    from importlib import metadata

    kit = next(iter(metadata.distributions(name="labs", path=site.getsitepackages())), None)
    installed = kit and f'"{ROOT.as_uri()}"' in (kit.read_text("direct_url.json") or "")
    entries = [str(ROOT) * (not installed), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return os.pathsep.join(filter(None, entries))


def user_name() -> str:
    """Return the user's name, or the number of one without a name, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # OSError: since Python 3.13.
        return str(os.getuid())


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
    if (found := shutil.which("labs")) and os.path.samefile(found, program):
        return "labs"
    return shlex.quote(os.path.relpath(program) if program.absolute().is_relative_to(Path.cwd()) else str(program))


def shown(path: Path) -> str:
    """Return a path as text, relative to the clone if it is inside."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
