"""Real workers, started by the real launcher."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from labs.run import mpirun

PROGRAMS = Path(__file__).parent / "programs"
LABS = [sys.executable, "-m", "labs"]


@pytest.fixture(scope="session")
def workers():
    """Run a program of `programs/` on a number of workers and return the finished process."""

    def run(program: str, size: int, *arguments: object, check: bool = True) -> subprocess.CompletedProcess:
        done = subprocess.run(
            [*mpirun.command(size), sys.executable, str(PROGRAMS / program), *map(str, arguments)],
            env=mpirun.environment(), capture_output=True, text=True, timeout=240, check=False,
        )
        assert not check or done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done

    return run


@pytest.fixture
def labs(tmp_path):
    """Start `labs ...` with a separate results root and return the process."""
    started = []

    def start(*arguments: object) -> subprocess.Popen:
        process = subprocess.Popen(
            [*LABS, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"LABS_RESULTS": str(tmp_path / "results")}, cwd=tmp_path,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
            process.wait(60)  # A run that has begun to train saves first.
