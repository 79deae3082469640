"""Folders of the kit on this machine; an environment variable moves each of them."""

import errno
import os
import stat
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def _folder(kind: str) -> Path:
    """Return the folder that an environment variable names, or else the clone's."""
    path = os.environ.get(f"LABS_{kind.upper()}")
    return Path(path).expanduser() if path else ROOT / kind  # A shell keeps the `~` of a quoted path.


def make_folders_absolute() -> None:
    """Make the folders that variables name absolute, for programs that run elsewhere, such as a notebook's kernel."""
    for variable in ("LABS_DATA", "LABS_RESULTS", "LABS_WORK", "LABS_CLUSTER"):
        if path := os.environ.get(variable):
            os.environ[variable] = str(Path(path).expanduser().absolute())


def data_dir() -> Path:
    """Return the folder of the data sets: `LABS_DATA`, else `data/` of the clone."""
    return _folder("data")


def results_dir() -> Path:
    """Return the results folder: `LABS_RESULTS`, else `results/` of the clone."""
    return _folder("results")


def work_dir() -> Path:
    """Return the folder of a student's working copies: `LABS_WORK`, else `work/` of the clone."""
    return _folder("work")


def own_temporary_dir() -> Path:
    """Make this user's folder of files that runs share, in TMPDIR; raise OSError if it may be another user's."""
    folder = Path(tempfile.gettempdir()) / f"labs-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(errno.EPERM, "must be a folder that only this user can access", str(folder))
    return folder


def python_path() -> str:
    """Return PYTHONPATH without empty entries, as in `:/x`: they mean the working folder, where a keras.py may lie."""
    return os.pathsep.join(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))


def search_path() -> str:
    """Return PATH with the folders of `tc` and Slurm's daemons, which an ordinary user's often lacks."""
    return f"{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin"


def format_path(path: Path) -> str:
    """Return a path as text, relative to the clone if it is inside."""
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)
