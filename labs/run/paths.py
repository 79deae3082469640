"""Folders of the kit on this machine; an environment variable moves each of them."""

from __future__ import annotations

import errno
import getpass
import os
import shlex
import shutil
import site
import stat
import sys
import tempfile
from pathlib import Path

from labs.run.errors import LabError, quoted

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = ("LABS_DATA", "LABS_RESULTS", "LABS_WORK", "LABS_CLUSTER")
"""The variables that name folders."""


def expand_home(path: str | os.PathLike, source: str) -> Path:
    """Return a path that a user has given, with `~` replaced: a shell keeps it in `--results=~/runs` and in quotes.

    Args:
        path: The path, which need not exist.
        source: Where it comes from, such as "--results" or "LABS_DATA".

    Raises:
        LabError: The path begins with the home folder of an unknown user.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise LabError(f"{source} {quoted(str(path))}: this machine has no such home folder; choose another path"
                       ) from None


def _folder(variable: str, default: Path) -> Path:
    """Return the folder that an environment variable names, or else a default."""
    path = os.environ.get(variable)
    return expand_home(path, variable) if path else default


def make_folders_absolute() -> None:
    """Make the folders that variables name absolute, for programs that run elsewhere, such as a notebook's kernel."""
    for variable in FOLDERS:
        if path := os.environ.get(variable):
            os.environ[variable] = str(expand_home(path, variable).absolute())


def data_dir() -> Path:
    """Return the folder of the data sets: `LABS_DATA`, else `data/` of the clone."""
    return _folder("LABS_DATA", ROOT / "data")


def results_dir() -> Path:
    """Return the results folder: `LABS_RESULTS`, else `results/` of the clone."""
    return _folder("LABS_RESULTS", ROOT / "results")


def work_dir() -> Path:
    """Return the folder of a student's working copies: `LABS_WORK`, else `work/` of the clone."""
    return _folder("LABS_WORK", ROOT / "work")


def own_temporary_dir() -> Path:
    """Make this user's folder of files that runs share, in TMPDIR, and return it.

    Raises:
        OSError: The path cannot be made, or is not a folder that this user owns and no other can access: the folder of
            temporary files may be open to all users, and another one may have made a folder or a link of this name.
    """
    folder = Path(tempfile.gettempdir()) / f"labs-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(
            errno.EPERM, f"{folder.name} must be a folder that this user owns and no other can access", str(folder))
    return folder


def check_working_folder() -> None:
    """Refuse a working folder that has been deleted: mpirun and many libraries need one.

    Raises:
        LabError: The working folder has been deleted.
    """
    try:
        os.getcwd()
    except FileNotFoundError:
        raise LabError("the working folder has been deleted; `cd` to another") from None


def python_path() -> str:
    """Return PYTHONPATH for programs that need `labs`: with the clone first, unless it is installed.

    A student's keras.py in the clone would hide Keras, and an empty entry, as in `:/x`, means the working folder.
    """
    from importlib import metadata

    kit = next(iter(metadata.distributions(name="labs", path=site.getsitepackages())), None)
    installed = kit and f'"{ROOT.as_uri()}"' in (kit.read_text("direct_url.json") or "")
    # A folder for each: `labs` is in the first, `horovod_keras3` in the second.
    kits = [] if installed else [str(ROOT), str(ROOT / "horovod_keras3")]
    entries = [*kits, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return os.pathsep.join(filter(None, entries))


def search_path() -> str:
    """Return PATH with the folders of `tc` and Slurm's daemons, which an ordinary user's often lacks."""
    return f"{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin"


def user_name() -> str:
    """Return the user's name, or the user ID if there is no name, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # OSError: since Python 3.13.
        return str(os.getuid())


def labs_command() -> str:
    """Return how the user called `labs`, for commands to paste: "labs", ".venv/bin/labs", or with a full path."""
    program = Path(sys.argv[0])
    if program.name != "labs":  # `python -m labs`, a worker, a notebook.
        program = Path(sys.executable).parent / "labs"
    if not program.exists():
        return shlex.join([sys.executable, "-m", "labs"])
    on_path = shutil.which("labs")
    return "labs" if on_path and os.path.samefile(on_path, program) else shlex.quote(str(program))


def format_path(path: Path) -> str:
    """Return a path as text, relative to the clone if it is inside."""
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)
