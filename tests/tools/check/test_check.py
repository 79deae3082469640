"""`labs check` names each of these breakages, all of them made for real, by its cause and its cure."""

from __future__ import annotations

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
from tests.setup.clone import PINS, VERSION, pretend_installed

SITE = Path(sysconfig.get_path("purelib"))
FOREIGN = ("LABS_", "HOROVOD_", "OMPI_", "PMIX_", "PRTE_", "SLURM_", "SBATCH_", "TF_", "PYTHON", "KERAS_", "TMPDIR",
           "CUDA_", "LD_")


class Machine:
    """This machine with a separate home, results and environment."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.python, self.before = folder, Path(sys.executable), list[str]()
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        self.env |= {"LABS_RESULTS": str(folder / "results"), "HOME": str(folder), "PYTHONPATH": str(ROOT)}
        (folder / "results").mkdir()

    def check(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run([*self.before, self.python, "-m", "labs", "check", *words], env=self.env, cwd=ROOT,
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

    def replace(self, path: str, text: str) -> None:
        """Make an environment in which one file of Horovod has another text."""
        site = self.environment("horovod")
        for entry in SITE.glob("horovod*"):
            (shutil.copytree if entry.is_dir() else shutil.copy2)(entry, site / entry.name)
        (site / path).write_text(text)

    def mount(self, size: str, folder: str) -> None:
        """Run the check where a folder is a small file system."""
        self.before = ["unshare", *(["--map-root-user"] if os.geteuid() else []), "--mount", "sh", "-ec",
                       f'mount -t tmpfs -o size={size} none {folder}\nexec "$@"', "sh"]
        if subprocess.run([*self.before, "true"], capture_output=True, check=False).returncode:
            pytest.skip("mounting needs more rights here")


def variable(name: str, value: str) -> Callable[[Machine], None]:
    return lambda machine: machine.env.update({name: value})


def old_keras(machine: Machine) -> None:
    (machine.folder / "keras").mkdir()
    (machine.folder / "keras/__init__.py").touch()
    pretend_installed(machine.folder, "keras", "2.15.0")
    machine.env["PYTHONPATH"] = f"{machine.folder}:{ROOT}"


def horovod_of_a_site(machine: Machine) -> None:
    path = "horovod/runner/common/util/secret.py"
    machine.replace(path, (SITE / path).read_text().replace("def launch_key", "def another"))
    machine.env["LD_LIBRARY_PATH"] = str(SITE.parents[1])  # The copy finds Open MPI there.


BREAKAGES = [  # Check, state, how it is made, cause, cure.
    ("packages", "fail", old_keras, "keras 2.15.0 is in .*: the labs need keras 3", "unset PYTHONPATH"),
    ("tensorflow", "fail", variable("TF_USE_LEGACY_KERAS", "1"), "does not load", "unset TF_USE_LEGACY_KERAS"),
    ("horovod", "fail", lambda machine: machine.replace("horovod/metadata.json", '{"tensorflow": "2.14.0"}'),
     f"built for TensorFlow 2.14.0, and {PINS['tensorflow']} is", "make env"),
    ("horovod", "warn", horovod_of_a_site, "it has CVE-2024-10190 and CVE-2026-31234", "make env"),
    ("variables", "fail", variable("KERAS_BACKEND", "jax"), "a backend other than TensorFlow", "unset KERAS_BACKEND"),
    ("variables", "fail", variable("PMIX_RANK", "1"), "is left over from inside a run", "unset PMIX_RANK"),
    ("disk", "fail", lambda machine: machine.mount("20m", f"{machine.folder}/results"),
     r"2\d MB free for .*results, and a run of two workers needs 100", "export LABS_RESULTS="),
    ("disk", "fail", variable("LABS_DATA", "/proc/none"), "/proc cannot be written", "export LABS_DATA="),
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
    assert set(states) >= set(command.CHECKS)
    assert {states[name] for name in ("python", "disk", "tensorflow", "horovod", "proof")} == {"ok"}


def test_nothing_of_the_kit_is_needed_to_say_that_nothing_is_there(tmp_path):
    machine = Machine(tmp_path)
    shutil.rmtree(machine.environment())
    done = machine.check()
    assert (done.returncode, "Traceback" in done.stdout + done.stderr) == (1, False)
    lines = {name: line for line in done.stdout.splitlines() for name in [line.split()[1]]}
    assert re.match("fail .* not installed: numpy, cloudpickle, .* -> make env$", lines["packages"]), lines
    assert all(lines[name].startswith("absent") for name in ("slurm", "tensorflow", "horovod", "proof")), lines
    assert done.stdout.endswith("this machine cannot run the labs yet: packages\n")
