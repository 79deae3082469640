"""Open the notebooks in JupyterLab."""

from __future__ import annotations

import argparse
import functools
import getpass
import os
import socket
from collections.abc import Mapping
from pathlib import Path

from labs.run import environment
from labs.run.errors import LabError
from labs.run.paths import ROOT, format_path, make_folders_absolute, work_dir
from labs.tools.notebook import working_copies


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe `labs notebook` and its option."""
    parser.description = ("Open the notebooks in JupyterLab, with this Python as their kernel. They open as copies in "
                          "work/, which git ignores, or in the folder that LABS_WORK names; a copy that you have "
                          "edited is never overwritten. The server accepts connections only from this machine, with a "
                          "token; if your browser is on another machine, use the ssh command that is printed. Ctrl-C "
                          "stops the server and its kernels.")
    parser.add_argument("--copy-only", action="store_true",
                        help="update the copies and exit, for a server that runs already, such as JupyterHub")


def main(args: argparse.Namespace) -> None:
    """Update the copies, and serve until Ctrl-C or SIGTERM."""
    make_folders_absolute()  # The server runs in the kit, and a kernel in the copies.
    work = work_dir()
    update(work)
    if args.copy_only:
        print(f"the notebooks are in {format_path(work)}")
        return
    print("starting JupyterLab: about ten seconds ...", flush=True)
    from labs.tools.notebook import jupyter_server  # Loads JupyterLab.

    os.chdir(ROOT)  # Where its relative paths lead.
    environment.refuse_harmful()
    # Without a screen, Jupyter might open a text browser.
    screen = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")) and not is_remote()
    jupyter_server.serve(work, screen, functools.partial(_announce, work.name))


def update(work: Path) -> None:
    """Bring the working copies up to date; print which edited ones are older than their notebooks.

    Raises:
        LabError: The copies cannot be written, as in a clone that a class shares.
    """
    try:
        outdated = working_copies.update(ROOT / "notebooks", work)
    except OSError as problem:
        raise LabError(f"the copies of the notebooks cannot be written to {format_path(work)}: "
                       f"{problem.strerror or problem}; set LABS_WORK to a folder of your own") from None
    for name in outdated:
        print(f"{format_path(work / name)} stays as you edited it; to get the notebook's new version, rename your "
              "copy, then start again")


def _announce(folder: str, port: int, token: str) -> None:
    """Print the server's address, and how to reach it from another machine."""
    print(f"JupyterLab: http://127.0.0.1:{port}/lab/tree/{folder}?token={token}")
    if is_remote():
        print(f"for a browser on your own machine, there: {tunnel(port)}")
    print("Ctrl-C ends it and its kernels", flush=True)


def is_remote() -> bool:
    """Return whether the user is on another machine: logged in by ssh, or through Slurm."""
    return "SSH_CONNECTION" in os.environ or "SLURM_JOB_ID" in os.environ


def tunnel(port: int, environ: Mapping[str, str] = os.environ) -> str:
    """Return the ssh command that forwards a port of this node to the user's machine; in a job, via the login node."""
    user, node, login = getpass.getuser(), socket.gethostname(), environ.get("SLURM_SUBMIT_HOST")
    through = f"-J {user}@{login} " if login not in (None, node) else ""
    return f"ssh -N -L {port}:127.0.0.1:{port} {through}{user}@{node}"
