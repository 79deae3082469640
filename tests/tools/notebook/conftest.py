"""A JupyterLab for the tests of this folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.notebook.serving import Server, serving

DECOY = {"argv": ["false", "{connection_file}"], "display_name": "Another Python", "language": "python",
         "metadata": {"supported_encryption": ["curve"]}}
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


@pytest.fixture(scope="session")
def home(tmp_path_factory) -> Path:
    """A home in which another kernel is called python3, and whose settings would open Jupyter to everyone."""
    home = tmp_path_factory.mktemp("home")
    for share in (".local/share/jupyter", "site"):
        (home / share / "kernels/python3").mkdir(parents=True)
        (home / share / "kernels/python3/kernel.json").write_text(json.dumps(DECOY))
    (home / ".jupyter").mkdir()
    (home / ".jupyter/jupyter_server_config.py").write_text(OPEN)
    for name, settings in LAB.items():
        file = home / f".jupyter/lab/user-settings/@jupyterlab/{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(settings))
    return home


@pytest.fixture(scope="session")
def server(home, tmp_path_factory) -> Iterator[Server]:
    """One for all tests that do not end it; what they train is kept apart."""
    other = {"JUPYTER_PATH": str(home / "site"), "JUPYTER_PREFER_ENV_PATH": "0"}
    with serving(home, DISPLAY=":0", LABS_RESULTS=str(tmp_path_factory.mktemp("results")), **other) as server:
        yield server
