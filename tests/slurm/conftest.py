"""The fixtures `slurm` and `four`: real clusters of two and of four nodes, started once and gone after their tests."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from labs.run.paths import ROOT
from tests.slurm.client import Slurm, unavailable
from tests.tools.cluster import client

STUB = """\
#!/usr/bin/env python3
import json, os, sys
print(json.dumps({"words": sys.argv[1:], "folder": os.getcwd()}))
sys.exit(int(os.environ.get("STUB_EXIT", "0")))
"""


@pytest.fixture(scope="session")
def slurm(tmp_path_factory) -> Iterator[Slurm]:
    """Two nodes named node1 and node2."""
    with running(tmp_path_factory, nodes=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def four(tmp_path_factory) -> Iterator[Slurm]:
    """Four nodes named node1 to node4."""
    with running(tmp_path_factory, nodes=4) as cluster:
        yield cluster


@contextlib.contextmanager
def running(tmp_path_factory: pytest.TempPathFactory, nodes: int, cpus: int = 4, gpus: int = 2) -> Iterator[Slurm]:
    """Run Slurm on nodes that report these CPUs and GPUs, and see the tests' temporary folder."""
    if reason := unavailable():
        pytest.skip(f"no Slurm to test with: {reason}")
    cores = min(cpus, len(os.sched_getaffinity(0)))
    words = ["--slurm", "--nodes", nodes, "--cores", cores, "--cpus", cpus, "--gpus", gpus]
    folder = tmp_path_factory.mktemp("slurm") / "cluster"
    with client.running(folder, *words, *client.sharing(tmp_path_factory.getbasetemp())) as cluster:
        yield Slurm(cluster)


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
