"""The launcher of a run, whatever earlier ones have left."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time

import psutil
import pytest

from labs.launch import local


@pytest.mark.workers
def test_what_a_killed_launcher_has_left_is_in_nobodys_way(tmp_path, monkeypatch):
    """Open MPI's folder has the number of a process, and each of the next processes would find one of its number."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    killed = psutil.Popen([*local.mpirun(1), "sleep", "60"], env=local.environment(), stderr=subprocess.DEVNULL)
    left = tmp_path / f"ompi.{killed.pid}"
    while not (left / "pmix.vm.tool").exists() or not (kin := killed.children()):
        assert killed.poll() is None
        time.sleep(0.05)
    for process in (killed, *kin):
        process.kill()
    killed.wait()
    for number in range(killed.pid + 1, killed.pid + 500):
        shutil.copytree(left, left.with_suffix(f".{number}"))
    with local.started([*local.mpirun(1), "true"], local.environment()) as process:
        _, errors = process.communicate()
    assert process.returncode == 0, errors.decode()
    assert not [*tmp_path.glob("labs-mpi-*")]
