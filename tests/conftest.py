"""What several rooms' tests share."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# A shell that starts the tests in the background has them ignore Ctrl-C, and so would all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def environment():
    """Give each test the variables that it began with: a lab run in this process sets Horovod's for its own run."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture(scope="session")
def samples() -> Path:
    """The folder of real pictures for development; where there is none, its tests are skipped."""
    folder = Path(os.environ.get("LABS_SAMPLES") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no samples in {folder} (set LABS_SAMPLES)")
    return folder
