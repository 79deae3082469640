"""`labs check` names each of these breakages, all of them made for real, by its cause and its cure."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from labs.run.paths import ROOT
from labs.tools.check import command
from tests.setup.clone import PINS, pretend_installed
from tests.tools.check.machine import Machine


@pytest.fixture
def machine(tmp_path) -> Iterator[Machine]:
    there = Machine(tmp_path)
    yield there
    there.repair()


def variable(name: str, value: str) -> Callable[[Machine], None]:
    return lambda machine: machine.env.update({name: value})


def old_python(machine: Machine) -> None:
    """As Debian 12's: it says so to whoever asks."""
    machine.program = ["-c", "import sys; sys.version_info = (3, 11, 2, 'final', 0); from labs.cli import main; main()"]


def moved_environment(machine: Machine) -> None:
    machine.environment()
    (machine.folder / ".venv" / ".ready-default-own").write_text("/home/me/old/.venv\n/home/me/old\n")


def empty_environment(machine: Machine) -> None:
    shutil.rmtree(machine.environment())


def numpy_2(machine: Machine) -> None:
    tensorflow_of("2.17.1")(machine)
    machine.overlay("numpy", "2.1.0")


def tensorflow_of(version: str) -> Callable[[Machine], None]:
    """Have TensorFlow report another version, as a container's or a site's would."""
    return lambda machine: pretend_installed(machine.environment("tensorflow-2"), "tensorflow", version)


def conda_without_pandas(machine: Machine) -> None:
    """The Python that an environment was made with, and its packages: no virtual environment."""
    site = machine.environment("pandas")
    machine.python = Path(sys.base_prefix) / "bin" / "python3"
    machine.env["PYTHONPATH"] = f"{site}:{ROOT}"


def wrong_keras_on_the_path(machine: Machine) -> None:
    machine.overlay("keras", "2.15.0")


def channels_first(machine: Machine) -> None:
    (machine.folder / ".keras").mkdir()
    (machine.folder / ".keras" / "keras.json").write_text(json.dumps({"image_data_format": "channels_first"}))


def damaged_tensorflow(machine: Machine) -> None:
    machine.part("tensorflow")
    library = machine.part("tensorflow", "python") / "_pywrap_tensorflow_internal.so"
    library.unlink()
    library.write_bytes(b"\x7fELF")


def horovod_for_another_tensorflow(machine: Machine) -> None:
    note = machine.part("horovod") / "metadata.json"
    note.unlink()
    note.write_text(json.dumps({"tensorflow": "2.14.0"}))


def horovod_without_its_layer(machine: Machine) -> None:
    machine.environment("__editable__.horovod_keras3", "horovod_keras3-")


def horovod_of_a_site(machine: Machine) -> None:
    names = ("horovod", "runner", "common", "util")
    secret = [machine.part(*names[: depth + 1]) for depth in range(len(names))][-1] / "secret.py"
    machine.script("mpirun", f'exec {Path(sys.executable).with_name("mpirun")} "$@"')
    text = secret.read_text()
    secret.unlink()
    secret.write_text(text.replace("def launch_key", "def another"))


def another_mpirun(machine: Machine) -> None:
    machine.environment()
    machine.script("mpirun", "echo 'mpirun (Open MPI) 4.1.4'")


def no_mpirun(machine: Machine) -> None:
    machine.environment()
    machine.env["PATH"] = str(machine.folder)


def inside_another_run(machine: Machine) -> None:
    machine.env |= {"PMIX_MCA_gds": "hash", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1", "PMIX_RANK": "1"}


def quota_of_one_core(machine: Machine) -> None:
    machine.group(("cpu/cpu.cfs_quota_us", "100000"), ("cpu.max", "100000 100000"))


def memory(machine: Machine, limit: int) -> None:
    machine.group(("memory/memory.limit_in_bytes", str(limit)), ("memory.max", str(limit)))


def little_memory(machine: Machine) -> None:
    memory(machine, 1_000_000_000)


def memory_for_no_library(machine: Machine) -> None:
    memory(machine, 200_000_000)


def small_shared_memory(machine: Machine) -> None:
    machine.apart("--mount", "mount -t tmpfs -o size=16m none /dev/shm")


def no_temporary_folder(machine: Machine) -> None:
    machine.env["TMPDIR"] = str(machine.folder / "gone")


def small_disk(machine: Machine) -> None:
    machine.apart("--mount", f"mount -t tmpfs -o size=20m none {machine.results}")


def forbidden_results(machine: Machine) -> None:
    machine.student()
    machine.results.chmod(0o555)


def results_of_a_run_of_roots(machine: Machine) -> None:
    machine.student()
    (machine.results / "lab02_horovod").mkdir(mode=0o555)


def half_a_data_set(machine: Machine) -> None:
    (machine.data / "cifar10" / "cifar-10-batches-bin").mkdir(parents=True)


def nonsense_in_slurm_conf(machine: Machine) -> None:
    if not shutil.which("scontrol"):
        pytest.skip("no scontrol on this machine")
    (machine.folder / "slurm.conf").write_text("Nonsense\n")
    machine.env["SLURM_CONF"] = str(machine.folder / "slurm.conf")


BREAKAGES = [  # Check, state, how it is made, cause, cure.
    ("python", "fail", old_python, "is 3.11.2; the labs need 3.11.4 to 3.13", "make env PYTHON="),
    ("python", "fail", moved_environment, "was made as /home/me/old/.venv", "make env"),
    ("packages", "fail", empty_environment, "not installed: numpy, cloudpickle", "make env$"),
    ("packages", "fail", numpy_2, "numpy is 2.1.0, and TensorFlow 2.17.1 was compiled for numpy 1", "unset PYTHONPATH"),
    ("packages", "fail", conda_without_pandas, "not installed: pandas", f"pip install pandas=={PINS['pandas']}$"),
    ("keras", "fail", wrong_keras_on_the_path, "keras 2.15.0 is in .*overlay: the labs need keras 3",
     "unset PYTHONPATH"),
    ("keras", "warn", channels_first, "keras.json sets image_data_format to channels_first, which the labs reset",
     r"rm .*keras.json"),
    ("tensorflow", "warn", tensorflow_of("2.22.0"), "the labs are tested with 2.21.0", "support-matrix.md"),
    ("tensorflow", "fail", damaged_tensorflow, "does not load: ImportError: .*file too short", "make env"),
    ("tensorflow", "fail", variable("TF_USE_LEGACY_KERAS", "1"), "does not load", "unset TF_USE_LEGACY_KERAS"),
    ("tensorflow", "fail", memory_for_no_library, "does not load: was killed by SIGKILL", "end other programs"),
    ("horovod", "fail", horovod_for_another_tensorflow, f"built for TensorFlow 2.14.0, and {PINS['tensorflow']} is",
     "make env"),
    ("horovod", "fail", horovod_without_its_layer, "^horovod_keras3 is not installed for", "make env"),
    ("horovod", "warn", horovod_of_a_site, "it has CVE-2024-10190 and CVE-2026-31234", "make env"),
    ("horovod", "fail", another_mpirun, "it loads Open MPI v5.* and mpirun is 4.1.4", "make env"),
    ("mpi", "fail", no_mpirun, "no mpirun beside this Python or on the PATH", "make env"),
    ("variables", "fail", variable("KERAS_BACKEND", "jax"), "a backend other than TensorFlow", "unset KERAS_BACKEND"),
    ("variables", "warn", variable("HOROVOD_TIMELINE", "t"), "makes every run write", "unset HOROVOD_TIMELINE"),
    ("variables", "fail", variable("LABS_SITE", "mars"), "=mars names no file", "unset LABS_SITE"),
    ("variables", "fail", inside_another_run, "is left over from inside a run",
     "unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PMIX_RANK"),
    ("cores", "fail", variable("SLURM_JOB_ID", "7"), "is set, but not SLURM_TASKS_PER_NODE", "unset SLURM_JOB_ID"),
    ("cores", "warn", quota_of_one_core, r"1 of \d+( \(the CPU quota is 1\))?: two workers take", "--oversubscribe"),
    ("memory", "fail", little_memory, r"[01]\.\d GB free of \d+; two workers take 2", "--mem"),
    ("shm", "fail", small_shared_memory, "17 MB free in /dev/shm", "--shm-size"),
    ("tmp", "warn", no_temporary_folder, "TMPDIR=.*/gone is not a folder; /.* is used", "unset TMPDIR"),
    ("results", "fail", small_disk, r"2\d MB free for .*results$", "export LABS_RESULTS="),
    ("results", "fail", forbidden_results, "results cannot be written: Permission denied", "export LABS_RESULTS="),
    ("results", "fail", results_of_a_run_of_roots, "lab02_horovod cannot be written", r"chown -R \d+ .*lab02_horovod"),
    ("datasets", "fail", half_a_data_set, "is not CIFAR-10, .*: no data_batch_1", "then labs data fetch cifar10"),
    ("slurm", "fail", nonsense_in_slurm_conf, "Parse error in file .*slurm.conf line 1", "unset SLURM_CONF"),
    ("proof", "fail", variable("HOROVOD_CPU_OPERATIONS", "gloo"), "could not complete a training step: signal 11",
     "unset HOROVOD_CPU_OPERATIONS"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("check", "state", "broken", "cause", "cure"), BREAKAGES)
def test_a_breakage_is_named_with_its_cause_and_its_cure(check, state, broken, cause, cure, machine):
    broken(machine)
    (result,) = machine.findings(check)
    assert result["state"] == state, result
    assert re.search(cause, result["found"]), result
    assert re.search(cure, result["cure"]), result


@pytest.mark.workers
def test_a_machine_that_is_well_is_green_on_one_screen(machine):
    done = machine.check()
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, last = done.stdout.splitlines()
    assert last == "this machine can run the labs"
    assert len(lines) <= 24  # A terminal's height, with the command and the last line.
    states = {name: state for state, name in (line.split()[:2] for line in lines)}
    assert set(states) >= set(command.CHECKS)
    assert {states[name] for name in ("python", "keras", "mpi", "tensorflow", "horovod", "proof", "results")} == {"ok"}
    assert "fail" not in states.values()


def test_nothing_of_the_kit_is_needed_to_say_that_nothing_is_there(machine):
    empty_environment(machine)
    done = machine.check()
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    lines = {name: line for line in done.stdout.splitlines() for name in [line.split()[1]]}
    assert lines["packages"].startswith("fail")
    assert lines["memory"].endswith("skipped, because packages failed")
    assert lines["proof"].endswith("failed")


def test_a_check_that_is_not_there(machine):
    done = machine.check("--only", "weather")
    assert done.returncode == 1
    assert done.stderr.startswith("labs: error: unknown check 'weather'; there are: python, ")
