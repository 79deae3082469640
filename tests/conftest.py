"""What several rooms' tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def samples() -> Path:
    """The folder of real pictures for development; where there is none, its tests are skipped."""
    folder = Path(os.environ.get("LABS_SAMPLES") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no samples in {folder} (set LABS_SAMPLES)")
    return folder
