"""Build the kit's environment: `make env` creates it, `make horovod` adds Horovod to the active environment.

A killed run leaves no stamp, so the next one starts from scratch; concurrent runs take turns.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import horovod_wheel
import launchers
import packages
from gpu import CPU, find_gpu, link_cusolver
from horovod_wheel import Build
from machine import Mpi, check_folder, check_machine, check_space, find_mpi
from steps import SetupError, Steps, locked

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = ["build", "notebook", "test"]
PYTHON_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
PROOF_SECONDS = 600  # About 10 s on two idle cores, minutes on busy ones.


@dataclasses.dataclass(frozen=True)
class Environment:
    """The environment to make: its folder, and where its MPI comes from."""

    folder: Path
    mpi: str

    @property
    def python(self) -> Path:
        """The environment's Python."""
        return self.folder / "bin" / "python"

    @property
    def stamp(self) -> Path:
        """The file that says that the environment works; `make` and `labs check` read it."""
        return self.folder / f".ready-default-{self.mpi}"

    @property
    def stamp_text(self) -> str:
        """The paths that must not change: the environment's, and the clone's, from which it imports the labs."""
        return f"{self.folder}\n{ROOT}\n"

    @property
    def is_fresh(self) -> bool:
        """Whether it has to be made from scratch: a run was killed, a folder was moved, or the choices are others."""
        made = self.stamp.exists() and self.stamp.read_text() == self.stamp_text
        return not (made and (self.folder / "lib" / f"python{PYTHON_VERSION}").exists())


def make_env(wanted: Environment) -> None:
    """Make the environment: pinned packages, Horovod, and the proof that two workers train together."""
    stamp, before = wanted.stamp, _made_at(wanted.stamp)
    check_machine()
    check_folder(wanted.folder)
    with locked(ROOT / ".env-lock", "waiting for another run that makes this environment\n") as waited:
        if waited and _made_at(stamp) not in (None, before):  # The run that held the lock has made this environment.
            return
        fresh = wanted.is_fresh
        build = _build_for(wanted)
        horovod_wheel.check(build)
        if fresh:
            check_space(wanted.folder)
        for old in wanted.folder.glob(".ready-*"):
            if fresh:
                print(f"{_described(old)} is made again as {wanted.mpi}, Python {PYTHON_VERSION}")
            old.unlink()
        verdict = _fill(build, wanted, fresh)
        stamp.write_text(wanted.stamp_text)
        print(verdict)


def _made_at(stamp: Path) -> int | None:
    """Return a stamp's modification time in nanoseconds, or None if it does not exist."""
    try:
        return stamp.stat().st_mtime_ns
    except FileNotFoundError:  # The run that holds the lock may delete it at any time.
        return None


def _described(stamp: Path) -> str:
    """Return an existing environment's folder and choices: .venv (own, Python 3.13)."""
    pythons = [path.name.replace("python", "Python ") for path in stamp.parent.glob("lib/python3.*")]
    return f"{stamp.parent.name} ({', '.join([stamp.name.rpartition('-')[2], *pythons])})"


def _fill(build: Build, wanted: Environment, fresh: bool) -> str:
    steps = Steps(3 + fresh, ROOT / ".env-log")
    if fresh:
        with steps.step(f"virtual environment {wanted.folder.name}, Python {sys.version.split()[0]}"):
            env = packages.clean_environment()
            flags = ["--clear", "--without-pip", "--prompt", "labs"]
            steps.run([sys.executable, "-m", "venv", *flags, wanted.folder], env)
            steps.run([wanted.python, "-m", "ensurepip"], env)  # Separately, since `venv` hides its error messages.
    with steps.step(f"packages at the versions of {packages.CONSTRAINTS}"):
        extras = [*EXTRAS, "mpi"] if wanted.mpi == "own" else EXTRAS
        packages.install(steps, wanted.python, ROOT, packages.requirements(ROOT, extras))
    return _add_horovod(steps, build, wanted.python)


def _add_horovod(steps: Steps, build: Build, python: Path) -> str:
    how = "cached" if horovod_wheel.cached(build) else "minutes"
    with steps.step(f"Horovod {build.horovod} for TensorFlow {build.tensorflow}, {build.mpi.version} ({how})"):
        wheel = horovod_wheel.wheel(steps, build, python)
        flags = ["--no-deps", "--force-reinstall", "--no-index"]
        steps.run([python, *packages.PIP_INSTALL, *flags, wheel], packages.clean_environment())
        if build.mpi.folder == python.parent and (python.parent / "ompirun_wrapper").exists():  # Not conda's.
            launchers.set_up_mpi(python.parent.parent)
        packages.install_layer(steps, python, ROOT)
    with steps.step("proof: two workers take a step"):
        return prove(steps, build.mpi, python)


def prove(steps: Steps, mpi: Mpi, python: Path, program: Path = ROOT / "setup" / "proof.py") -> str:
    """Run setup/proof.py on two workers and return its last line.

    Raises:
        SetupError: The weights differ, or the program did not start or did not end.
    """
    sys.path.append(str(ROOT))
    from labs.run.errors import PROOF_PREFIX, proof_verdict

    # The kit knows Open MPI's flags; as a program of the new environment it also finds that environment's mpirun.
    ours = mpi.version.startswith("openmpi")
    own, sites = [python, "-m", "labs", "launch", "--oversubscribe", "2"], [mpi.folder / "mpirun", "-np", "2", python]
    # In a Slurm job of one task, two workers would be too many.
    env = {name: value for name, value in packages.clean_environment().items() if not name.startswith("SLURM_")}
    env |= {"PYTHONPATH": str(ROOT), "LABS_MPI": mpi.version}
    if _visible_gpus() < 2:
        env["CUDA_VISIBLE_DEVICES"] = ""  # NCCL refuses two workers on one GPU.
    try:
        output = steps.run([*(own if ours else sites), program], env, timeout=PROOF_SECONDS)
        return PROOF_PREFIX + proof_verdict(output)
    except SetupError as error:
        if verdict := proof_verdict(steps.log.read_text(errors="replace")):
            raise SetupError(f"{PROOF_PREFIX}{verdict} (log: {steps.log})") from None
        raise SetupError(f"the proof failed: {error}") from None


def _visible_gpus() -> int:
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:  # This Python may lack NVML's package.
        return sum(each not in ("", "-1") for each in visible.split(","))
    if shutil.which("nvidia-smi") is None:
        return 0
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    return 0 if listed.returncode else listed.stdout.count("GPU ")


def _build_for(wanted: Environment) -> Build:
    pins = packages.read_pins(ROOT)
    own = Mpi(f"openmpi-{pins['openmpi']}", wanted.python.parent)
    mpi = own if wanted.mpi == "own" else find_mpi(os.environ["PATH"])
    return Build(pins["horovod"], pins["tensorflow"], PYTHON_VERSION, mpi, movable=mpi is own)


def make_horovod() -> None:
    """Add Horovod to the running Python, with NCCL unless HOROVOD_GPU_OPERATIONS is empty."""
    python = Path(sys.executable)
    tensorflow = _installed("tensorflow")
    if tensorflow is None:
        raise SetupError(f"no TensorFlow for {python}; conda env create -f environment.yml, and activate it")
    link_cusolver(Path(sysconfig.get_path("purelib")))
    build = _build_for_active(packages.read_pins(ROOT)["horovod"], tensorflow)
    horovod_wheel.check(build)
    print(_add_horovod(Steps(2, ROOT / ".env-horovod-log"), build, python))


def _build_for_active(horovod: str, tensorflow: str) -> Build:
    scripts = Path(sysconfig.get_path("scripts"))
    mpi = find_mpi(f"{scripts}{os.pathsep}{os.environ['PATH']}")
    gpu = find_gpu(os.environ) if os.environ.get("HOROVOD_GPU_OPERATIONS", "NCCL") else CPU
    return Build(horovod, tensorflow, PYTHON_VERSION, mpi, gpu, movable=mpi.folder == scripts and gpu.movable)


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def main() -> int:
    """Run one of the two commands; an obstacle is reported in one line, with exit status 1."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["env", "horovod"])
    parser.add_argument("--mpi", default="own", help="own: Open MPI inside the environment; system: the one on PATH")
    parser.add_argument("--venv", default=".venv", help="the environment's folder")
    args = parser.parse_args()
    try:
        if args.mpi not in ("own", "system"):
            raise SetupError(f"there is no MPI={args.mpi}; leave it out, or use MPI=system for the one on PATH")
        venv = Path(os.path.abspath(args.venv))  # As in the Makefile, a link in the path stays.
        make_env(Environment(venv, args.mpi)) if args.command == "env" else make_horovod()
    except SetupError as error:
        print(f"{args.command}: error: {error}", file=sys.stderr)
        return 1
    except OSError as error:  # A folder without write permission, a missing program.
        print(f"{args.command}: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{args.command}: stopped; the same command starts again", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
