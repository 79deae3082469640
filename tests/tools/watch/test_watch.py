"""`labs watch`: the table of a real run, in a terminal until its end."""

import os
import pty
import re
import subprocess
import sys

import pytest

from labs.run import mpirun
from labs.run.paths import ROOT
from tests.waiting import ends

WATCH = [sys.executable, "-m", "labs", "watch"]


@pytest.mark.workers
def test_a_real_run_is_watched_to_its_end_and_the_slow_rank_waits_least(tmp_path):
    run = subprocess.Popen([*mpirun.command(2), sys.executable, "-m", "tests.workers.programs.single_fault", "--name",
                            "slow", "--epochs", "6", "--results", tmp_path], cwd=ROOT, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, env=mpirun.environment() | {"FAULT": "1 dawdles"})
    ours, terminal = pty.openpty()
    text, waiting = "", list[float]()
    try:
        with ends(180):
            while (len(waiting) < 2 or waiting[1] >= waiting[0]) and run.poll() is None:  # The first steps compile.
                text = subprocess.run([*WATCH, "slow", "--results", tmp_path], capture_output=True, text=True,
                                      check=False).stdout
                waiting = [float(each) for each in re.findall(r"(?m)\d\.\d  +(\d+\.\d)  +\d+ s ago$", text)]
            assert waiting[1] < waiting[0], text  # Rank 1 sleeps in each step.
            watch = subprocess.Popen([*WATCH, "--results", tmp_path], stdin=terminal, stdout=terminal)
            assert (watch.wait(), run.wait()) == (0, 0)
        assert "/slow: finished" in os.read(ours, 2**16).decode()
    finally:
        run.kill()
