"""What a student types first starts workers: plain horovodrun and mpirun, also as root and by their paths."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
ours = pytest.mark.skipif(not (BIN / "ompirun_wrapper").exists(), reason="the site's Open MPI has the site's defaults")
WORKER = """
import os, sys
rank = os.environ["OMPI_COMM_WORLD_RANK"]
print(f"rank {rank}, {sys.prefix}, {len(os.sched_getaffinity(0))} cores, {sys.argv[1]}", flush=True)
"""


@pytest.mark.workers
@ours
@pytest.mark.parametrize("launcher", ["mpirun", "horovodrun"])
def test_a_launcher_called_by_its_path_starts_the_environments_python_unbound(launcher, tmp_path):
    (tmp_path / "train.py").write_text(WORKER)
    elsewhere = os.pathsep.join(folder for folder in os.environ["PATH"].split(os.pathsep) if Path(folder) != BIN)
    env = {name: value for name, value in os.environ.items() if not name.startswith("OMPI_")} | {"PATH": elsewhere}
    command = [BIN / launcher, "-np", "2", "python", "train.py", "a b"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    for rank in range(2):
        assert f"rank {rank}, {sys.prefix}, {len(os.sched_getaffinity(0))} cores, a b" in done.stdout, done.stderr
