"""Open the notebooks in JupyterLab."""

import argparse
import getpass
import os
import secrets
import shlex
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from labs.run import environment
from labs.run.errors import LabError
from labs.run.paths import ROOT, format_path, make_folders_absolute, work_dir
from labs.tools.notebook import working_copies

SETTINGS = {
    "ServerApp.ip": "127.0.0.1",
    "ServerApp.port": 8888,  # The first port to try.
    "KernelManager.ip": "127.0.0.1",
    "KernelManager.transport_encryption": "required",  # Other users of the machine can reach that address, too.
    "ServerApp.answer_yes": True,  # One Ctrl-C stops the server and its kernels.
    "ServerApp.allow_root": True,  # In a container, where root is the only user.
    # In the kit the pages' commands find their files.
    "ServerApp.terminado_settings": f"shell_command=bash -c 'cd {shlex.quote(str(ROOT))} && exec bash'",
    "Application.log_level": "ERROR",
}
"""Passed as command-line options, so they override a user's own settings in ~/.jupyter and elsewhere."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe `labs notebook` and its option."""
    parser.description = ("Open the notebooks in JupyterLab, with this Python as their kernel. They open as copies in "
                          "work/, or in the folder that LABS_WORK names; a copy that you have edited is never "
                          "overwritten. If your browser is on another machine, use the ssh command that is printed.")
    parser.add_argument("--copy-only", action="store_true",
                        help="update the copies and exit, for a server that runs already, such as JupyterHub")


def main(args: argparse.Namespace) -> None:
    """Update the copies, and serve until Ctrl-C or SIGTERM."""
    make_folders_absolute()  # The server runs in the kit, and a kernel in the copies.
    work = work_dir()
    try:
        outdated = working_copies.update(ROOT / "notebooks", work)
    except OSError as problem:  # As in a clone that a class shares.
        raise LabError(f"the copies of the notebooks cannot be written to {format_path(work)}: "
                       f"{problem.strerror or problem}; set LABS_WORK to a folder of your own") from None
    for name in outdated:
        print(f"{format_path(work / name)} stays as you edited it; to get the notebook's new version, rename your "
              "copy, then start again")
    if args.copy_only:
        print(f"the notebooks are in {format_path(work)}")
    else:
        environment.refuse_harmful()
        print("starting JupyterLab: about ten seconds ...", flush=True)
        serve(work)


def serve(work: Path) -> None:
    """Serve the folder that holds the copies, by default the kit; print its address once the server listens."""
    from jupyterlab.labapp import LabApp

    os.chdir(ROOT)
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"  # The kernel is this Python, whatever the user has in ~/.local.
    token, remote = secrets.token_hex(24), "SSH_CONNECTION" in os.environ or "SLURM_JOB_ID" in os.environ
    # Without a screen, Jupyter might open a text browser.
    screen = not remote and bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    settings = SETTINGS | {"IdentityProvider.token": token, "ServerApp.open_browser": screen,
                           "ServerApp.root_dir": work.parent, "LabApp.default_url": f"/lab/tree/{work.name}"}
    server = LabApp.initialize_server([f"--{name}={value}" for name, value in settings.items()])

    def announce() -> None:
        print(f"JupyterLab: http://127.0.0.1:{server.port}/lab/tree/{work.name}?token={token}")
        if remote:
            print(f"for a browser on your own machine, there: {tunnel(server.port)}")
        print("Ctrl-C ends it and its kernels", flush=True)

    server.io_loop.add_callback(announce)  # Runs after the callback that binds the port.
    server.start()


def tunnel(port: int, environ: Mapping[str, str] = os.environ) -> str:
    """Return the ssh command that forwards a port of this node to the user's machine; in a job, via the login node."""
    user, node, login = getpass.getuser(), socket.gethostname(), environ.get("SLURM_SUBMIT_HOST")
    through = f"-J {user}@{login} " if login not in (None, node) else ""
    return f"ssh -N -L {port}:127.0.0.1:{port} {through}{user}@{node}"
