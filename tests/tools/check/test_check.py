"""`labs check` names each of these breakages, all of them made for real, by its cause and its cure."""

from __future__ import annotations

import json
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
        self.folder, self.python, self.program = folder, Path(sys.executable), ["-m", "labs"]
        self.before: list[str] = []
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        self.env |= {"LABS_RESULTS": str(folder / "results"), "HOME": str(folder), "PYTHONPATH": str(ROOT)}
        (folder / "results").mkdir()

    def check(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run([*self.before, self.python, *self.program, "check", *words], env=self.env, cwd=ROOT,
                              capture_output=True, text=True, timeout=200, check=False)

    def environment(self, *without: str) -> Path:
        """Make an environment whose packages are the real ones less some, and return their folder."""
        prefix = self.folder / ".venv"
        site = prefix / f"lib/python{VERSION}/site-packages"
        site.mkdir(parents=True)
        for entry in SITE.iterdir():
            if not entry.name.startswith(without or "-"):
                (site / entry.name).symlink_to(entry)
        base = Path(sys.executable).resolve()
        (prefix / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n")
        (prefix / "bin").mkdir()
        self.python = prefix / "bin/python"
        self.python.symlink_to(base)
        return site

    def replace(self, path: str, change: Callable[[str], str]) -> None:
        """Make an environment in which one file of a package has another text."""
        folder = site = self.environment()
        for name in path.split("/")[:-1]:
            folder /= name
            folder.unlink()
            folder.mkdir()
            for entry in (SITE / folder.relative_to(site)).iterdir():
                (folder / entry.name).symlink_to(entry)
        file = folder / Path(path).name
        text = change(file.read_text(errors="replace"))
        file.unlink()
        file.write_text(text)

    def script(self, name: str, text: str) -> None:
        """Put a program before all others on the PATH, of an environment without it."""
        self.python.parent == self.folder / ".venv/bin" or self.environment()
        (self.python.parent / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.python.parent / name).chmod(0o755)

    def apart(self, script: str) -> None:
        """Run the check in a new mount namespace, in which a script has run before."""
        self.before = ["unshare", *(["--map-root-user"] if os.geteuid() else []), "--mount", "sh", "-ec",
                       f'{script}\nexec "$@"', "sh"]
        if subprocess.run([*self.before, "true"], capture_output=True, check=False).returncode:
            pytest.skip("mounting needs more rights here")


def variable(name: str, value: str) -> Callable[[Machine], None]:
    return lambda machine: machine.env.update({name: value})


def old_python(machine: Machine) -> None:
    machine.program = ["-c", "import sys; sys.version_info = (3, 11, 2, 'final', 0); from labs.cli import main; main()"]


def old_keras(machine: Machine) -> None:
    (machine.folder / "keras").mkdir()
    (machine.folder / "keras/__init__.py").touch()
    pretend_installed(machine.folder, "keras", "2.15.0")
    machine.env["PYTHONPATH"] = f"{machine.folder}:{ROOT}"


def new_tensorflow(machine: Machine) -> None:
    pretend_installed(machine.environment("tensorflow-2"), "tensorflow", "2.22.0")


def no_conda_package(machine: Machine) -> None:
    site = machine.environment("pandas")
    machine.python = Path(sys.base_prefix) / "bin/python3"
    machine.env["PYTHONPATH"] = f"{site}:{ROOT}"


def horovod_of_a_site(machine: Machine) -> None:
    machine.replace("horovod/runner/common/util/secret.py", lambda text: text.replace("def launch_key", "def another"))
    machine.script("mpirun", f'exec {SITE.parents[2]}/bin/mpirun "$@"')


def nonsense_in_slurm_conf(machine: Machine) -> None:
    if not shutil.which("scontrol"):
        pytest.skip("no scontrol on this machine")
    (machine.folder / "slurm.conf").write_text("Nonsense\n")
    machine.env["SLURM_CONF"] = str(machine.folder / "slurm.conf")


BREAKAGES = [  # Check, state, how it is made, cause, cure.
    ("python", "fail", old_python, "is 3.11.2; the labs need 3.11.4 to 3.13", "make env PYTHON="),
    ("packages", "fail", no_conda_package, "not installed: pandas", f"pip install pandas=={PINS['pandas']}$"),
    ("packages", "fail", old_keras, "keras 2.15.0 is in .*: the labs need keras 3", "unset PYTHONPATH"),
    ("tensorflow", "warn", new_tensorflow, "the labs are tested with 2.21.0", "setup.md"),
    ("tensorflow", "fail", lambda machine: machine.replace("tensorflow/__init__.py", lambda _: "import nothing"),
     "does not load: ModuleNotFoundError", "make env"),
    ("tensorflow", "fail", variable("TF_USE_LEGACY_KERAS", "1"), "does not load", "unset TF_USE_LEGACY_KERAS"),
    ("horovod", "fail", lambda machine: machine.replace("horovod/metadata.json", lambda _: '{"tensorflow": "2.14.0"}'),
     f"built for TensorFlow 2.14.0, and {PINS['tensorflow']} is", "make env"),
    ("horovod", "fail", lambda machine: machine.environment("__editable__.horovod_keras3", "horovod_keras3-"),
     "^horovod_keras3 is not installed for", "make env"),
    ("horovod", "warn", horovod_of_a_site, "it has CVE-2024-10190 and CVE-2026-31234", "make env"),
    ("horovod", "fail", lambda machine: machine.script("mpirun", "echo 'mpirun (Open MPI) 4.1.4'"),
     "it loads Open MPI v5.* and mpirun is 4.1.4", "make env"),
    ("variables", "fail", variable("KERAS_BACKEND", "jax"), "a backend other than TensorFlow", "unset KERAS_BACKEND"),
    ("variables", "warn", variable("HOROVOD_TIMELINE", "t"), "makes every run write", "unset HOROVOD_TIMELINE"),
    ("variables", "fail", variable("PMIX_RANK", "1"), "is left over from inside a run", "unset PMIX_RANK"),
    ("disk", "fail", lambda machine: machine.apart(f"mount -t tmpfs -o size=20m none {machine.folder}/results"),
     r"2\d MB free for .*results, and a run of two workers needs 100", "export LABS_RESULTS="),
    ("disk", "fail", lambda machine: machine.apart("mount -t tmpfs -o size=16m none /dev/shm"), "17 MB free",
     "--shm-size"),
    ("disk", "fail", variable("LABS_CACHE", "/proc/none"), "/proc cannot be written", "export LABS_CACHE="),
    ("slurm", "fail", nonsense_in_slurm_conf, "Parse error in file .*slurm.conf line 1", "unset SLURM_CONF"),
    ("proof", "fail", variable("HOROVOD_CPU_OPERATIONS", "gloo"), "could not complete a training step: signal 11",
     "unset HOROVOD_CPU_OPERATIONS"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("check", "state", "broken", "cause", "cure"), BREAKAGES)
def test_a_breakage_is_named_with_its_cause_and_its_cure(check, state, broken, cause, cure, tmp_path):
    machine = Machine(tmp_path)
    broken(machine)
    done = machine.check("--json", "--only", check)
    (result,) = map(json.loads, done.stdout.splitlines())
    assert (result["state"], done.returncode) == (state, int(state == "fail")), result
    assert re.search(cause, result["message"]), result
    assert re.search(cure, result["cure"]), result


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
