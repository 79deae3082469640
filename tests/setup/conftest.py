"""The set-up programs are no package: they are imported from their folder, as they import each other."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.setup.clone import ROOT, Clone

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
        folder = clone.active.parent / "lib" / "python3.11" / "site-packages" / f"{name}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")

    return write
