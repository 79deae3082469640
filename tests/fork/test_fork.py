"""A fork as docs/teach.md describes it: other data in lab 10, another site and partition. The tests hold there, too."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from labs.run.paths import ROOT
from tests.tree import copied

TEACH = (ROOT / "docs/teach.md").read_text()
STEPS = re.findall(r"```shell\n(.*?)```", TEACH, re.DOTALL)
"""The commands that make the fork: those for the site, and those for the data set."""
TESTS = ["tests/datasets", "tests/docs", "tests/labs/test_lab10.py", "tests/labs/test_own_data.py", "tests/course",
         "tests/slurm/test_sites.py", "tests/results", "tests/run", "tests/cli",
         "tests/test_house.py", "tests/test_structure.py"]


def run(fork: Path, *words: str) -> None:
    """Run a program in the fork, with the fork's own `labs` and data; it must succeed."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("LABS_")}
    env |= {"PYTHONPATH": f"{fork}", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(words, cwd=fork, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False)
    assert done.returncode == 0, done.stdout[-5000:]


@pytest.mark.skipif(not (ROOT / "jobs/sites/teaching.sh").exists(), reason="this is such a fork already")
@pytest.mark.slow
@pytest.mark.notebooks
@pytest.mark.workers
@pytest.mark.timeout(1500)
def test_a_fork_with_other_data_and_another_site_passes_the_tests(tmp_path):
    fork = copied(tmp_path / "fork")
    (fork / ".venv").symlink_to(sys.prefix)  # A job activates the clone's environment.
    assert len(STEPS) == 2
    for step in STEPS:
        run(fork, "bash", "-euc", step)
    for program in ("notebooks/execute.py lab10", "notebooks/questions.py", "notebooks/reports.py"):
        run(fork, sys.executable, *program.split())
    assert '"campus"' in (fork / "labs/lab10_caltech.py").read_text()
    run(fork, sys.executable, "-m", "ruff", "check", ".")
    run(fork, sys.executable, "-m", "mypy")
    unmarked = "everyday or not (workers or network or slow or notebooks)"
    run(fork, sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", unmarked, *TESTS)
