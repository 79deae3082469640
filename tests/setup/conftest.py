"""The programs of setup/ are not a package: tests import them from their folder, as they import each other."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.setup.clone import ROOT, VERSION, Clone, pretend_installed

sys.path.insert(0, str(ROOT / "setup"))


@pytest.fixture
def clone(tmp_path) -> Clone:
    folder = tmp_path / "clone"
    folder.mkdir()
    return Clone(folder)


@pytest.fixture
def installed(clone):
    """Add a package's metadata to an empty active environment: installed("keras", "3.5.0")."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", clone.active.parent], check=True)

    def write(name: str, version: str) -> None:
        pretend_installed(clone.active.parent / "lib" / f"python{VERSION}" / "site-packages", name, version)

    return write
