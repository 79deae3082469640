"""The course's pages, built once for all tests of this folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from labs.run.paths import ROOT


@pytest.fixture(scope="session")
def site() -> Path:
    """Return build/site, built anew as `make site` does."""
    done = subprocess.run([sys.executable, ROOT / "site/build.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / "build/site"
