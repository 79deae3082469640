"""The set-up programs are no package: they are imported from their folder, as they import each other."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.setup.clone import ROOT, Clone, claim_package

sys.path.insert(0, str(ROOT / "setup"))


@pytest.fixture
def clone(tmp_path) -> Clone:
    folder = tmp_path / "clone"
    folder.mkdir()
    return Clone(folder)


@pytest.fixture
def claim(clone):
    """Make the active environment claim a package: claim("keras", "3.5.0"); before that it has none."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", clone.active.parent], check=True)

    def write(name: str, version: str) -> None:
        claim_package(clone.active.parent / "lib" / "python3.11" / "site-packages", name, version)

    return write
