"""Programs that measure: each runs in processes of its own and prints {"case": ..., "value": ...} lines."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import labs
from labs.launch import mpirun
from labs.run.paths import ROOT

Figures = dict[str, float]
LONGEST = 1200
"""Seconds that a program may take."""


def kit(network: str, workers: int, clock: str = "steps") -> Figures:
    """Return the kit's images per second on so many workers of one thread, by case: in steps, or in whole epochs."""
    with scratch() as folder:
        return figures(_kit(network, workers, folder, clock), **labs.SETTINGS)


def _kit(network: str, workers: int, folder: str, clock: str) -> list[str]:
    return [*mpirun.command(workers), sys.executable, "-m", "benchmarks.arms.kit", network, folder, clock]


def two_at_once(network: str) -> Figures:
    """Return the sum of two single workers that run at the same time: what two cores can give at most."""
    with scratch() as one, scratch() as other:
        started = [_start(_kit(network, 1, folder, "steps"), **labs.SETTINGS) for folder in (one, other)]
        found = [_finish(process) for process in started]
    return {case: sum(each[case] for each in found) for case in found[0]}


def arm(name: str, *words: object, **variables: str) -> Figures:
    """Run `python -m benchmarks.arms.NAME WORDS` and return what it prints, by case."""
    return figures([sys.executable, "-m", f"benchmarks.arms.{name}", *map(str, words)], **variables)


def figures(command: list[str], **variables: str) -> Figures:
    """Run a program and return what it prints, by case."""
    return _finish(_start(command, **variables))


def _start(command: list[str], **variables: str) -> subprocess.Popen:
    # As in an activated environment, where a program finds mpirun.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    # Without what importing the kit has set in this process: a program of others is as it comes.
    env = {name: value for name, value in mpirun.environment().items() if name not in labs.SETTINGS}
    return subprocess.Popen([shutil.which(command[0], path=path) or command[0], *command[1:]], cwd=ROOT, text=True,
                            env=env | {"PATH": path} | variables,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _finish(process: subprocess.Popen) -> Figures:
    try:
        out, errors = process.communicate(timeout=LONGEST)
    finally:
        process.kill()
    if process.returncode:
        sys.exit(f"benchmarks: error: {process.args!r} ended with {process.returncode}:\n{errors[-2000:]}")
    found = [json.loads(line[line.index("{"):]) for line in out.splitlines() if '{"case"' in line]
    return {each["case"]: each["value"] for each in found}


def seconds(*command: str) -> float:
    """Return how long a command takes."""
    began = time.perf_counter()
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return time.perf_counter() - began


def seconds_to_line(words: str, *command: str) -> float:
    """Return how long a command takes until it prints a line that begins with these words; then it is ended."""
    began = time.perf_counter()
    with subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        for line in process.stdout or ():
            if line.startswith(words):
                taken = time.perf_counter() - began
                process.terminate()
                return taken
    sys.exit(f"benchmarks: error: {command} never said {words!r}")


def torch_python() -> str | None:
    """Return a Python that has PyTorch: that of BENCH_TORCH_PYTHON, or this one."""
    for python in filter(None, [os.environ.get("BENCH_TORCH_PYTHON"), sys.executable]):
        if not subprocess.run([python, "-c", "import torch, numpy"], capture_output=True, check=False).returncode:
            return python
    return None


@contextmanager
def scratch() -> Iterator[str]:
    """Make a folder that is gone after the block."""
    with tempfile.TemporaryDirectory(prefix="labs-bench-") as folder:
        yield folder
