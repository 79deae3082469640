"""The fixtures `slurm` and `four`: real clusters of two and of four nodes, started once and gone after their tests."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.client import ROOT, Slurm
from tests.slurm.cluster import missing

STUB = """\
#!/usr/bin/env python3
import json, os, sys
print(json.dumps({"words": sys.argv[1:], "folder": os.getcwd()}))
sys.exit(int(os.environ.get("STUB_EXIT", "0")))
"""


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    """Two nodes named node1 and node2."""
    with running(nodes=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def four() -> Iterator[Slurm]:
    """Four nodes named node1 to node4."""
    with running(nodes=4) as cluster:
        yield cluster


@contextlib.contextmanager
def running(nodes: int, cpus: int = 4, gpus: int = 2) -> Iterator[Slurm]:
    """Run a cluster of nodes that report these CPUs and GPUs."""
    if missing():
        pytest.skip(f"no Slurm to test with: {missing()}")
    # A separate session, and it ends with our pipe: after Ctrl-C, a crash and even kill -9 of pytest.
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "tests.slurm.cluster", f"--nodes={nodes}", f"--cpus={cpus}", f"--gpus={gpus}",
         "--until-eof"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        line = supervisor.stdout.readline()
        assert line.startswith("export SLURM_CONF="), "the cluster did not start: see captured stderr"
        yield Slurm(Path(line.strip().partition("=")[2]))
    finally:
        supervisor.stdin.close()
        supervisor.wait(timeout=30)


@pytest.fixture
def clone(tmp_path) -> Path:
    """A clone whose path has a space and whose `labs` and `python` only tell how they were called."""
    clone = tmp_path / "my clone"
    shutil.copytree(ROOT / "jobs", clone / "jobs")
    programs = clone / ".venv/bin"
    programs.mkdir(parents=True)
    for name in ("labs", "python"):
        (programs / name).write_text(STUB)
        (programs / name).chmod(0o755)
    (programs / "activate").write_text(f"PATH={shlex.quote(str(programs))}:$PATH\n")
    return clone
