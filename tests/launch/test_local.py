"""The launcher of a run, whatever earlier ones have left."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from labs.launch import mpirun, supervisor
from labs.run.paths import ROOT


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """A folder of temporary files for this test alone."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


LAUNCHES = """
from labs.launch import supervisor
from labs.run.paths import ROOT
with supervisor.started(["bash", "-c", "touch $TMPDIR/__autograph_generated_file_.py; echo $TMPDIR; sleep 60"]) as one:
    print(one.stdout.readline().decode(), end="", flush=True)
    one.wait()
"""


def test_folders_of_killed_launches_are_removed_by_the_next_start_and_those_of_living_ones_are_not(temporary):
    def launch() -> tuple[subprocess.Popen, Path]:
        process = subprocess.Popen([sys.executable, "-c", LAUNCHES], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        folder = Path(process.stdout.readline().strip())
        os.utime(folder, (time.time() - 600,) * 2)
        return process, folder

    (killed, left), (living, held) = launch(), launch()
    killed.kill()
    killed.communicate()
    assert (left / "__autograph_generated_file_.py").exists()
    with supervisor.started(["true"]):
        assert not left.exists()
    assert (held / "__autograph_generated_file_.py").exists()
    living.terminate()
    living.communicate()


@pytest.mark.workers
def test_what_a_killed_launcher_has_left_is_in_no_ones_way(temporary):
    """Open MPI's folder has the number of a process, and each of the next processes would find one of its number."""
    killed = psutil.Popen([*mpirun.command(1), "sleep", "60"], env=mpirun.environment(), stderr=subprocess.DEVNULL)
    left = temporary / f"ompi.{killed.pid}"
    while not (left / "pmix.vm.tool").exists() or not (kin := killed.children()):
        assert killed.poll() is None
        time.sleep(0.05)
    for process in (killed, *kin):
        process.kill()
    killed.wait()
    for number in range(killed.pid + 1, killed.pid + 500):
        shutil.copytree(left, left.with_suffix(f".{number}"))
    with supervisor.started([*mpirun.command(1), "true"], mpirun.environment()) as process:
        _, errors = process.communicate()
    assert process.returncode == 0, errors.decode()
    assert not [*temporary.glob("labs-mpi-*")]
