"""Programs that measure: each runs in separate processes and prints {"case": ..., "value": ...} lines."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import labs
from labs.run import mpirun, supervisor
from labs.run.paths import ROOT

Figures = dict[str, float]
LONGEST = 1200
"""Time limit of a program, in seconds."""


def kit(network: str, workers: int, clock: str = "steps") -> Figures:
    """Return the kit's images per second by case, for workers of one thread.

    Args:
        network: Of `benchmarks.cases`.
        workers: How many.
        clock: Time the "steps" only, or whole "epochs".
    """
    with scratch() as folder:
        return figures(_kit(workers, folder, network, clock), **labs.SETTINGS)


def _kit(workers: int, *args: str) -> list[str]:
    # mpirun is the environment's: an MPI library works with its own launcher only.
    return ["mpirun", *mpirun.command(workers)[1:], sys.executable, "-m", "benchmarks.contenders.kit", *args]


def two_at_once(network: str) -> Figures:
    """Return the summed throughput of two independent workers at the same time: the upper bound of two cores."""
    with ExitStack() as running:
        commands = [_kit(1, running.enter_context(scratch()), network, "steps") for _ in range(2)]
        processes = [running.enter_context(_started(command, **labs.SETTINGS)) for command in commands]
        taken = [_finish(process) for process in processes]
    return {case: sum(each[case] for each in taken) for case in taken[0]}


def contender(name: str, *args: object, **variables: str) -> Figures:
    """Run `python -m benchmarks.contenders.NAME ARGS` and return the figures that it prints, by case."""
    return figures([sys.executable, "-m", f"benchmarks.contenders.{name}", *map(str, args)], **variables)


def figures(command: list[str], **variables: str) -> Figures:
    """Run a program in this environment and return the figures that it prints, by case."""
    with _started(command, **variables) as process:
        return _finish(process)


def _started(command: list[str], **variables: str) -> AbstractContextManager[subprocess.Popen]:
    # As in an activated environment, where mpirun is on the PATH.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    # Without the variables that importing the kit has set here: the other contenders run with their own defaults.
    env = {name: value for name, value in mpirun.environment().items() if name not in labs.SETTINGS}
    program = shutil.which(command[0], path=path) or command[0]
    return supervisor.started([program, *command[1:]], env | {"PATH": path} | variables)


def _finish(process: subprocess.Popen) -> Figures:
    out, errors = (text.decode(errors="replace") for text in process.communicate(timeout=LONGEST))
    if process.returncode != 0:
        sys.exit(f"benchmarks: error: {process.args!r} exited with code {process.returncode}\n{errors[-2000:]}")
    printed = [json.loads(line[line.index("{"):]) for line in out.splitlines() if '{"case"' in line]
    return {each["case"]: each["value"] for each in printed}


def seconds(*command: str) -> float:
    """Return the seconds that a command takes."""
    began = time.perf_counter()
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return time.perf_counter() - began


def seconds_to_line(start: str, *command: str) -> float:
    """Return the seconds until a command prints a line with this start, and terminate it."""
    began = time.perf_counter()
    with subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        for line in process.stdout or ():
            if line.startswith(start):
                taken = time.perf_counter() - began
                process.terminate()
                return taken
    sys.exit(f"benchmarks: error: {command} never printed a line that starts with {start!r}")


def torch_python() -> str | None:
    """Return a Python that has PyTorch: BENCH_TORCH_PYTHON, or this one; None if neither has."""
    for python in filter(None, [os.environ.get("BENCH_TORCH_PYTHON"), sys.executable]):
        if not subprocess.run([python, "-c", "import torch, numpy"], capture_output=True, check=False).returncode:
            return python
    return None


@contextmanager
def scratch() -> Iterator[str]:
    """Create a folder, and remove it after the block."""
    with tempfile.TemporaryDirectory(prefix="labs-bench-") as folder:
        yield folder
