"""`labs check` names each of these breakages, all of them made for real, by its cause and its cure."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from labs.run.paths import ROOT
from labs.tools.check import command
from tests.setup.clone import PINS, VERSION

SITE = Path(sysconfig.get_path("purelib"))
FOREIGN = ("LABS_", "HOROVOD_", "OMPI_", "PMIX_", "PRTE_", "SLURM_", "SBATCH_", "TF_", "PYTHON", "KERAS_", "TMPDIR",
           "CUDA_", "LD_")


class Machine:
    """This machine with a separate home, results and environment."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.python = folder, Path(sys.executable)
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        self.env |= {"LABS_RESULTS": str(folder / "results"), "HOME": str(folder), "PYTHONPATH": str(ROOT)}

    def check(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run([self.python, "-m", "labs", "check", *words], env=self.env, cwd=ROOT,
                              capture_output=True, text=True, timeout=200, check=False)

    def environment(self, *without: str) -> Path:
        """Make an environment whose packages are the real ones less some, and return their folder."""
        site = self.folder / f".venv/lib/python{VERSION}/site-packages"
        site.mkdir(parents=True)
        for entry in SITE.iterdir():
            if not entry.name.startswith(without or "-"):
                (site / entry.name).symlink_to(entry)
        self.python = self.folder / ".venv/bin/python"
        self.python.parent.mkdir()
        self.python.symlink_to(base := Path(sys.executable).resolve())
        (self.folder / ".venv/pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n")
        return site


def variable(name: str, value: str) -> Callable[[Machine], None]:
    return lambda machine: machine.env.update({name: value})


def replace_in_horovod(path: str, old: str, new: str) -> Callable[[Machine], None]:
    """Return a function that makes an environment in which one file of Horovod has another text."""
    def replace(machine: Machine) -> None:
        site = machine.environment("horovod")
        for entry in SITE.glob("horovod*"):
            (shutil.copytree if entry.is_dir() else shutil.copy2)(entry, site / entry.name)
        text = (site / path).read_text()
        assert old in text
        (site / path).write_text(text.replace(old, new))
        machine.env["LD_LIBRARY_PATH"] = str(SITE.parents[1])  # The copy finds Open MPI there.

    return replace


BREAKAGES = [  # Check, state, how it is made, cause, cure.
    ("tensorflow", "fail", variable("TF_USE_LEGACY_KERAS", "1"), "does not load", "unset TF_USE_LEGACY_KERAS"),
    ("horovod", "fail", replace_in_horovod("horovod/metadata.json", PINS["tensorflow"], "2.14.0"),
     f"built for TensorFlow 2.14.0, and {PINS['tensorflow']} is", "make env"),
    ("horovod", "warn", replace_in_horovod("horovod/runner/common/util/secret.py", "def launch_key", "def another"),
     "it has CVE-2024-10190 and CVE-2026-31234", "make env"),
    ("variables", "fail", variable("KERAS_BACKEND", "jax"), "a backend other than TensorFlow", "unset KERAS_BACKEND"),
    ("disk", "fail", variable("LABS_RESULTS", "/proc/none"), "/proc/none cannot be written", "export LABS_RESULTS="),
    ("slurm", "fail", variable("SLURM_CONF", "/nowhere"), "no Slurm cluster is set up here", "run this on"),
    ("proof", "fail", variable("HOROVOD_CPU_OPERATIONS", "gloo"), "could not complete a training step: signal 11",
     "unset HOROVOD_CPU_OPERATIONS"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("check", "state", "broken", "cause", "cure"), BREAKAGES)
def test_a_breakage_is_named_with_its_cause_and_its_cure(check, state, broken, cause, cure, tmp_path):
    if check == "slurm" and not shutil.which("sinfo"):
        pytest.skip("no Slurm on this machine")
    machine = Machine(tmp_path)
    broken(machine)
    done = machine.check("--only", check)
    assert re.fullmatch(f"{state} .*{cause}.* -> .*{cure}.*\n", done.stdout), done.stdout + done.stderr
    assert done.returncode == int(state == "fail")


@pytest.mark.workers
def test_a_machine_that_is_well_is_green(tmp_path):
    done = Machine(tmp_path).check()
    *lines, last = done.stdout.splitlines()
    assert (done.returncode, last) == (0, "this machine can run the labs"), done.stdout + done.stderr
    states = {name: state for state, name in (line.split()[:2] for line in lines)}
    assert set(states) == set(command.CHECKS)
    assert {states[name] for name in ("python", "disk", "tensorflow", "horovod", "proof")} == {"ok"}


def test_nothing_of_the_kit_is_needed_to_say_that_nothing_is_there(tmp_path):
    machine = Machine(tmp_path)
    shutil.rmtree(machine.environment())
    done = machine.check()
    assert (done.returncode, "Traceback" in done.stdout + done.stderr) == (1, False)
    *_, packages, last = done.stdout.splitlines()
    assert re.match("fail .* not installed: numpy, cloudpickle, .* -> make env$", packages), packages
    assert last == "this machine cannot run the labs yet: packages"
