"""Fixtures for all tests, and which tests may run at the same time."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests import taking_turns

ROOT = Path(__file__).resolve().parent.parent
LANES = ("workers", "slurm", "notebooks")
"""Markers of the tests that start many processes. Tests of one lane run one after the other, the longest lane first."""

# A shell that starts the tests in the background has them ignore Ctrl-C, and so would all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Divide the tests among xdist's processes: a group of tests runs in one process, in order."""
    for item in items:
        if ROOT / "tests/workers" in item.path.parents:
            item.add_marker(pytest.mark.workers)
    if not hasattr(config, "workerinput"):
        return
    for item in items:
        item.add_marker(pytest.mark.xdist_group(lane(item)))
    items.sort(key=lambda item: LANES.index(lane(item)) if lane(item) in LANES else len(LANES))


def lane(item) -> str:
    """Return the group of a test: its lane, or its file, whose fixtures its tests share."""
    if ROOT / "tests/notebooks" in item.path.parents:
        return "notebooks"  # They share a JupyterLab.
    return next((name for name in LANES if item.get_closest_marker(name)), item.path.stem)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    """Run a test marked `alone` while xdist's other processes run none."""
    if not hasattr(item.config, "workerinput"):
        return (yield)
    with taking_turns.turn(alone=item.get_closest_marker("alone") is not None):
        return (yield)


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
