"""`labs check` names each of these breakages, all of them made for real, by its cause and its cure."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import horovod
import pytest

from labs.run.paths import ROOT
from labs.tools.check import command

FOREIGN = ("LABS_", "HOROVOD_", "OMPI_", "PMIX_", "PRTE_", "SLURM_", "SBATCH_", "TF_", "PYTHON", "KERAS_", "TMPDIR",
           "CUDA_", "LD_")


def check(home: Path, *words: str, **variables: str) -> subprocess.CompletedProcess:
    """Run `labs check` with a separate home and results, and without this process's settings."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    env |= {"LABS_RESULTS": str(home / "results"), "HOME": str(home), "PYTHONPATH": f"{home}:{ROOT}"} | variables
    return subprocess.run([sys.executable, "-m", "labs", "check", *words], env=env, cwd=ROOT, capture_output=True,
                          text=True, timeout=200, check=False)


def unpatch_horovod(home: Path) -> None:
    """Make a copy of Horovod without the kit's patch, which is imported in its place."""
    installed = Path(horovod.__file__).parent
    shutil.copytree(installed, home / "horovod", ignore=lambda folder, names: {*names} & {"mxnet", "torch"})
    secret = home / "horovod/runner/common/util/secret.py"
    assert "def launch_key" in secret.read_text()
    secret.write_text(secret.read_text().replace("def launch_key", "def another"))


BREAKAGES = [  # Check, state, variables, cause, cure.
    ("tensorflow", "fail", {"TF_USE_LEGACY_KERAS": "1"}, "does not load", "unset TF_USE_LEGACY_KERAS"),
    ("horovod", "warn", {"LD_LIBRARY_PATH": f"{sys.prefix}/lib"},  # Where the copy finds Open MPI.
     "it has CVE-2024-10190 and CVE-2026-31234", "make env"),
    ("variables", "fail", {"KERAS_BACKEND": "jax"}, "a backend other than TensorFlow", "unset KERAS_BACKEND"),
    ("disk", "fail", {"LABS_RESULTS": "/proc/none"}, "/proc/none cannot be written", "export LABS_RESULTS="),
    ("proof", "fail", {"HOROVOD_CPU_OPERATIONS": "gloo"}, "could not complete a training step: signal 11",
     "unset HOROVOD_CPU_OPERATIONS"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "state", "variables", "cause", "cure"), BREAKAGES)
def test_a_breakage_is_named_with_its_cause_and_its_cure(name, state, variables, cause, cure, tmp_path):
    if name == "horovod":
        unpatch_horovod(tmp_path)
    done = check(tmp_path, "--only", name, **variables)
    assert re.fullmatch(f"{state} .*{cause}.* -> .*{cure}.*\n", done.stdout), done.stdout + done.stderr
    assert done.returncode == int(state == "fail")


@pytest.mark.workers
def test_a_machine_that_is_well_is_green(tmp_path):
    done = check(tmp_path)
    *lines, last = done.stdout.splitlines()
    assert (done.returncode, last) == (0, "this machine can run the labs"), done.stdout + done.stderr
    states = {name: state for state, name in (line.split()[:2] for line in lines)}
    assert set(states) == set(command.CHECKS)
    assert {states[name] for name in ("packages", "disk", "tensorflow", "horovod", "proof")} == {"ok"}


def test_it_runs_where_no_package_is_installed(tmp_path):
    bare = subprocess.run([sys.executable, "-S", "-m", "labs", "check"], cwd=ROOT, capture_output=True, text=True,
                          check=False)
    assert (bare.returncode, bare.stderr) == (1, "")
    assert "packages    not installed: numpy, " in bare.stdout
