"""`labs notebook`: JupyterLab on the notebooks. This Python is their kernel, and only this machine reaches it.

    make notebook
"""

from __future__ import annotations

import getpass
import os
import secrets
import socket
from collections.abc import Mapping

from jupyter_client.kernelspec import KernelSpecManager
from jupyterlab.labapp import LabApp

from labs.run.paths import ROOT


class OwnKernel(KernelSpecManager):
    """Knows one kernel, "python3": the Python that runs this, whatever other kernels have been installed."""

    def _kernel_dirs_default(self) -> list[str]:
        return []


SETTINGS = {
    "ServerApp.ip": "127.0.0.1",
    "ServerApp.port": 8888,  # The first that is tried; then the next ones.
    "ServerApp.root_dir": ROOT,
    "LabApp.default_url": "/lab/tree/notebooks",
    "ServerApp.kernel_spec_manager_class": "labs.cli.notebook.OwnKernel",
    "KernelManager.ip": "127.0.0.1",
    "KernelManager.transport_encryption": "required",  # Other users of the machine reach that address, too.
    "ServerApp.answer_yes": True,  # One Ctrl-C ends it and its kernels.
    "ServerApp.allow_root": True,  # In a container, where root is the only user.
    "LabApp.news_url": None,  # No popup that asks whether to fetch JupyterLab's news,
    "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",  # and none that offers to replace a pin.
    "Application.log_level": "ERROR",
}
"""Given as on a command line, they go before what stands in a user's own files, ~/.jupyter and others."""


def main() -> None:
    """Serve until Ctrl-C or SIGTERM, then end the kernels."""
    token = secrets.token_hex(24)
    settings = SETTINGS | {"IdentityProvider.token": token, "ServerApp.open_browser": opens_browser()}
    server = LabApp.initialize_server([f"--{name}={value}" for name, value in settings.items()])
    server.io_loop.add_callback(lambda: _tell(server.port, token))  # Behind the one that takes the port.
    server.start()


def _tell(port: int, token: str) -> None:
    """Print the address, and how to reach it from elsewhere."""
    print(f"JupyterLab: http://127.0.0.1:{port}/lab/tree/notebooks?token={token}")
    if is_remote():
        print(f"for a browser on your own machine, there: {tunnel(port)}")
    print("Ctrl-C ends it and its kernels", flush=True)


def is_remote(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether the user sits at another machine: came by ssh, or through Slurm."""
    return "SSH_CONNECTION" in environ or "SLURM_JOB_ID" in environ


def opens_browser(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether the user sits before this machine's screen; else Jupyter might open a browser in the terminal."""
    return not is_remote(environ) and bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))


def tunnel(port: int, environ: Mapping[str, str] = os.environ) -> str:
    """Return the ssh command that makes a port of this node one of the user's machine: in a job by the login node."""
    user, node, login = getpass.getuser(), socket.gethostname(), environ.get("SLURM_SUBMIT_HOST")
    through = f"-J {user}@{login} " if login not in (None, node) else ""
    return f"ssh -N -L {port}:127.0.0.1:{port} {through}{user}@{node}"
