"""The fixture `slurm`: a real cluster of two nodes, started once and gone after its tests."""

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from labs.run.paths import ROOT
from tests.slurm.client import Slurm, running

STUB = """\
#!/bin/sh
printf '%s\\n' "$PWD" "$@"
exit ${STUB_EXIT:-0}
"""


@pytest.fixture(scope="session")
def slurm(tmp_path_factory) -> Iterator[Slurm]:
    """Two nodes named node1 and node2."""
    with running(tmp_path_factory) as cluster:
        yield cluster


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
