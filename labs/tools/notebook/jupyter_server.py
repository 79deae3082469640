"""The JupyterLab server of `labs notebook`: one kernel, this Python; reachable from this machine only, with a token."""

from __future__ import annotations

import os
import secrets
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_server.base.handlers import JupyterHandler
from jupyterlab.labapp import LabApp

from labs.run.paths import ROOT
from labs.tools.notebook.working_copies import COPIED


class OwnKernel(KernelSpecManager):
    """Offers one kernel, "python3": the Python that runs the server. Other installed kernels are not offered."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """Return the kernel; even after a restart it has `%%px` before the page's first cell runs."""
        spec = super().get_kernel_spec(kernel_name)
        spec.argv.append("--IPKernelApp.exec_lines=import labs.launch.resident")
        return spec

    def _kernel_dirs_default(self) -> list[str]:
        return []


BIN = Path(sys.executable).parent
_START = f"""PATH={shlex.quote(str(BIN))}:$PATH
[ ! -e {COPIED} ] || cd {shlex.quote(str(ROOT))}"""
TERMINAL = ["bash", "-c", f"exec bash --rcfile <(cat ~/.bashrc 2> /dev/null; echo; echo {shlex.quote(_START)})"]
"""A terminal's program: its `python` and `labs` are this environment's, even if the user's start file changes PATH.

JupyterLab opens a terminal in the folder that its file browser shows. Instead of the folder of the working copies it is
the kit, where the pages' commands find their files.
"""
SETTINGS = {
    "ServerApp.ip": "127.0.0.1",
    "ServerApp.port": 8888,  # The first port to try.
    "ServerApp.kernel_spec_manager_class": "labs.tools.notebook.jupyter_server.OwnKernel",
    "KernelManager.ip": "127.0.0.1",
    "KernelManager.transport_encryption": "required",  # Other users of the machine can reach that address, too.
    "ServerApp.answer_yes": True,  # One Ctrl-C stops the server and its kernels.
    "ServerApp.allow_root": True,  # In a container, where root is the only user.
    "ServerApp.terminado_settings": f"shell_command={shlex.join(TERMINAL)}",
    "Application.log_level": "ERROR",
}
"""Passed as command-line options, so they override a user's own settings in ~/.jupyter and elsewhere."""
ANNOUNCEMENTS = "@jupyterlab/apputils-extension:announcements"
"""JupyterLab's popups: one asks whether to fetch news, and covers figures; one offers to replace a pinned version."""


def serve(folder: Path, open_browser: bool, announce: Callable[[int, str], None]) -> None:
    """Serve until Ctrl-C or SIGTERM, then stop the kernels.

    Args:
        folder: The folder to show first; the server offers the folder that holds it, by default the kit.
        open_browser: Open the notebooks in a browser on this machine.
        announce: Called with the port and the token once the server listens.
    """
    token = secrets.token_hex(24)
    os.environ["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    settings = SETTINGS | {"IdentityProvider.token": token, "ServerApp.open_browser": open_browser,
                           "ServerApp.root_dir": folder.parent, "LabApp.default_url": f"/lab/tree/{folder.name}"}
    server = LabApp.initialize_server([f"--{name}={value}" for name, value in settings.items()])
    server.web_app.settings["page_config_hook"] = _without_announcements
    server.io_loop.add_callback(lambda: announce(server.port, token))  # Runs after the callback that binds the port.
    server.start()


def _without_announcements(handler: JupyterHandler, page_config: dict[str, Any]) -> dict[str, Any]:
    """Disable the popups. JupyterLab 4.6 ignores `LabApp.news_url = None`, which should do it."""
    return page_config | {"disabledExtensions": [*page_config.get("disabledExtensions", []), ANNOUNCEMENTS]}
