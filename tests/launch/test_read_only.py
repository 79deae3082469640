"""The kit in a read-only environment and a read-only checkout, as in an image or a shared folder of a class."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from labs.run.paths import ROOT

# In a new namespace both folders are mounted on themselves, read-only. That also holds for root.
READ_ONLY = "for folder in {folders}; do mount --bind $folder $folder; mount -o remount,bind,ro $folder; done"


@pytest.fixture
def read_only(tmp_path):
    """Run a command in bash, in an empty folder, with the clone and its environment read-only."""
    home = tmp_path / "home"
    home.mkdir()
    # A test's environment may lie inside the clone.
    mount = READ_ONLY.format(folders=shlex.join(map(str, dict.fromkeys([ROOT, Path(sys.prefix).resolve()]))))
    done = subprocess.run(["unshare", "-rm", "true"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this machine makes no namespaces: {done.stderr.strip()}")
    mount = f"{mount}; ! touch {ROOT}/new {sys.prefix}/new 2>/dev/null"

    def run(command: str, **variables: str) -> subprocess.CompletedProcess:
        foreign = ("LABS_RESULTS", "LABS_DATA", "LABS_WORK")
        env = {name: value for name, value in os.environ.items() if name not in foreign}
        env |= {"HOME": str(home), "PYTHONPATH": str(ROOT), "LABS": f"{sys.executable} -m labs"} | variables
        return subprocess.run(["unshare", "-rm", "bash", "-euc", f"{mount}; cd {home}; {command}"], env=env, text=True,
                              capture_output=True, timeout=280, check=False)

    return run


@pytest.mark.workers
def test_two_workers_train_and_their_results_are_shown(read_only, tmp_path):
    mine = {"LABS_RESULTS": str(tmp_path / "results"), "LABS_DATA": str(tmp_path / "data")}
    done = read_only("$LABS run lab02 --workers 2 --epochs 2 --batch-size 128 --name mine; $LABS results; $LABS report",
                     **mine)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "results" / "lab02_horovod" / "mine" / "record.json").exists()
    assert (tmp_path / "results" / "report.html").exists()


@pytest.mark.parametrize(("command", "cure"), [("$LABS run lab02 --workers 2", "--results"),
                                               ("$LABS data fetch mnist", "LABS_DATA"),
                                               ("$LABS notebook --copy-only", "LABS_WORK")])
def test_without_a_folder_of_ones_own_one_line_says_so(read_only, command, cure):
    done = read_only(command)
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("labs: error: ")]
    assert "Read-only file system" in line
    assert cure in line
