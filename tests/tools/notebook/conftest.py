"""`labs notebook` as a user starts it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import requests

from labs.run.paths import ROOT

DECOY = {"argv": ["false", "{connection_file}"], "display_name": "Another Python", "language": "python"}
OPEN = """
c.ServerApp.ip = c.KernelManager.ip = "0.0.0.0"
c.IdentityProvider.token = ""
"""
LAB = {
    "apputils-extension/notification": {"fetchNews": "false"},  # It would ask.
    "docmanager-extension/plugin": {"autosave": False},  # The clone's notebooks stay as they are.
    "notebook-extension/tracker": {"windowingMode": "none"},  # All cells are in the page, not only those in view.
}
"""What the user has told JupyterLab itself."""


@dataclass
class Server:
    """A running `labs notebook`."""

    process: psutil.Popen
    home: Path

    @property
    def output(self) -> str:
        """What it has printed so far."""
        return (self.home / "said").read_text()

    @property
    def address(self) -> str:
        """What it told the user to open."""
        return re.search(r"http\S+", self.output)[0]

    @property
    def token(self) -> str:
        """Its token."""
        return self.address.partition("?token=")[2]

    def ask(self, method: str, what: str, token: str | None = None, **body: object) -> requests.Response:
        """Ask its REST interface, with its own token if no other is given."""
        mine = {"Authorization": f"token {self.token if token is None else token}"}
        url = f"{self.address.partition('/lab/')[0]}/api/{what}"
        return requests.request(method, url, headers=mine, json=body or None, timeout=60)

    def family(self) -> list[psutil.Process]:
        """Return it, its kernels and whatever these have started."""
        return [self.process, *self.process.children(recursive=True)]


@contextlib.contextmanager
def serving(home: Path, **variables: str) -> Iterator[Server]:
    """Start `labs notebook` for a user with this home and these variables; nothing of it is left at the end."""
    browser = home / "browser"
    browser.write_text(f'#!/bin/sh\ncp "${{1#file://}}" {home}/opened\n')  # Jupyter's page, which leads to the address.
    browser.chmod(0o755)
    others = ("DISPLAY", "WAYLAND_DISPLAY", "SSH_", "SLURM_", "JUPYTER_", "XDG_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    env |= {"HOME": str(home), "BROWSER": str(browser), "PYTHONPATH": f"{ROOT}:{env.get('PYTHONPATH', '')}"}
    (home / "said").write_text("")
    ours, terminal = os.openpty()  # Where Jupyter could ask whether Ctrl-C was meant.
    with (home / "said").open("a") as output:
        process = psutil.Popen([sys.executable, "-m", "labs", "notebook"], env=env | variables, cwd=home,
                               stdin=terminal, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    os.close(terminal)
    family = [process]
    try:
        server = Server(process, home)
        while "Ctrl-C" not in server.output:
            assert process.poll() is None, server.output
            time.sleep(0.1)
        yield server
        family = server.family() if process.is_running() else family
    finally:
        if process.poll() is None:
            process.terminate()
        for left in psutil.wait_procs(family, timeout=30)[1]:
            left.kill()
        os.close(ours)


@pytest.fixture(scope="session")
def home(tmp_path_factory) -> Path:
    """A home in which another kernel is called python3, and whose settings would open Jupyter to everyone."""
    home = tmp_path_factory.mktemp("home")
    (home / ".local/share/jupyter/kernels/python3").mkdir(parents=True)
    (home / ".local/share/jupyter/kernels/python3/kernel.json").write_text(json.dumps(DECOY))
    (home / ".jupyter").mkdir()
    (home / ".jupyter/jupyter_server_config.py").write_text(OPEN)
    for name, settings in LAB.items():
        file = home / f".jupyter/lab/user-settings/@jupyterlab/{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(settings))
    return home


@pytest.fixture(scope="session")
def server(home) -> Iterator[Server]:
    """One for all tests that do not end it; what they train is kept apart."""
    with serving(home, DISPLAY=":0", LABS_RESULTS="results", JUPYTER_PREFER_ENV_PATH="0") as server:
        yield server
