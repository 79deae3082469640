"""Runs of `labs` on real workers."""

import os
import subprocess
import sys

import pytest


@pytest.fixture
def labs(tmp_path):
    """Start `labs ...` with a separate results root and return the process."""
    started = []

    def start(*arguments: object) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, "-m", "labs", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env=os.environ | {"LABS_RESULTS": str(tmp_path / "results")}, cwd=tmp_path,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
            process.wait(60)  # A run that has begun to train saves first.
