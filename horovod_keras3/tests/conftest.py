"""Real workers, started by Horovod's own launcher."""

import os
import subprocess
import sysconfig
from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def launch() -> Callable[..., None]:
    """Return a function that runs a command, with more environment variables, and expects success."""
    path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"  # horovodrun is beside this Python.

    def run(*words: object, env: dict[str, str] | None = None) -> None:
        done = subprocess.run(list(map(str, words)), env=os.environ | {"PATH": path} | (env or {}),
                              capture_output=True, text=True, timeout=900, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]

    return run
