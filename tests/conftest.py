"""Fixtures for all tests, and which tests may run at the same time."""

import fcntl
import os
import signal
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).resolve().parent.parent
LANES = {"tests/workers": "workers", "tests/labs": "workers", "tests/launch": "workers", "tests/examples": "workers",
         "horovod_keras3/tests": "workers", "tests/slurm": "clusters", "tests/tools/cluster": "clusters",
         "tests/notebooks": "notebooks", "tests/tools/notebook": "notebooks",
         "tests/site": "site"}
"""Folders whose tests start many processes. Tests of one lane run one after the other, the longest lane first."""

os.environ.pop("LABS_STUDENT", None)  # It would change the seeds of runs.

# A shell that starts the tests in the background makes them, and every process that they start, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


def lane(nodeid: str) -> str:
    """Return the unit that xdist gives to one process: the lane of a test, or its file."""
    file = nodeid.partition("::")[0]
    return next((name for folder, name in LANES.items() if file.startswith(f"{folder}/")), file)


class Lanes(LoadScopeScheduling):
    """Give each lane, and each other file, to one of xdist's processes."""

    def _split_scope(self, nodeid: str) -> str:
        return lane(nodeid)


def pytest_xdist_make_scheduler(config, log):
    """Replace xdist's `loadgroup`, whose groups pytest 9.2 ignores. `--dist loadfile` stays xdist's own."""
    return Lanes(config, log) if config.option.dist == "load" else None


def pytest_collection_modifyitems(config, items):
    """Mark the tests of real workers and clusters; start the lanes first under xdist."""
    for item in items:
        if item.nodeid.startswith("tests/workers/"):
            item.add_marker(pytest.mark.workers)
        if item.nodeid.startswith("tests/tools/cluster/"):
            item.add_marker(pytest.mark.slow)
    if hasattr(config, "workerinput"):
        order = list(dict.fromkeys(LANES.values()))
        items.sort(key=lambda item: [*order, lane(item.nodeid)].index(lane(item.nodeid)))


class Turns:
    """A plugin, because pytest does not call this file's own hook for the tests of horovod_keras3."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item):
        """Run a test marked `alone` while xdist's other processes run none; `flock` locks what lies here anyway."""
        kind = fcntl.LOCK_EX if item.get_closest_marker("alone") else fcntl.LOCK_SH
        queue, running = (os.open(path, os.O_RDONLY) for path in (__file__, Path(__file__).parent))
        try:
            fcntl.flock(queue, fcntl.LOCK_EX)  # A test that waits to be alone keeps it: others would let it starve.
            fcntl.flock(running, kind)
            fcntl.flock(queue, fcntl.LOCK_UN)
            return (yield)
        finally:
            fcntl.flock(running, fcntl.LOCK_UN)  # A forked child may have the folder open.
            os.close(queue)
            os.close(running)


def pytest_configure(config):
    """Let a test have the machine for itself under xdist."""
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Turns())


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
    folder = Path(os.environ.get("LABS_SAMPLES") or ROOT.parent / "shared" / "data").expanduser()
    if not folder.is_dir():
        assert not os.environ.get("LABS_SAMPLES"), f"LABS_SAMPLES names no folder: {folder}"
        pytest.skip(f"no samples in {folder} (set LABS_SAMPLES)")
    return folder
