"""A student's own training script: a folder for it, and the commands that run it, as in a terminal."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

from labs.launch import mpirun, supervisor
from labs.run import atomic
from labs.run.errors import LabError
from labs.run.paths import ROOT, results_dir

RANK = re.compile(r"^\[(?:[^\]]*[,@])?(\d+)\]<std(?:out|err)>: ?", re.MULTILINE)
"""What horovodrun writes before each line of a worker."""
LIMIT = 300
"""Seconds after which a command is ended."""


class Result(NamedTuple):
    """What a script prints at its end."""

    steps: int
    """Per epoch."""
    loss: float
    """Mean loss of the test images."""


def begin() -> Path:
    """Return the results folder with plain.py, finished.py, and the student's train.py, at first a copy of plain.py."""
    folder = results_dir()
    folder.mkdir(parents=True, exist_ok=True)
    plain = (ROOT / "examples/plain/train.py").read_text()
    atomic.write_text(folder / "plain.py", plain)
    atomic.write_text(folder / "finished.py", (ROOT / "examples/lab02_horovod.py").read_text())
    if not (folder / "train.py").exists():
        atomic.write_text(folder / "train.py", plain)
    return folder


def ready() -> str:
    """Return "train.py" if the student has changed it, otherwise "finished.py"."""
    folder = results_dir()
    changed = (folder / "train.py").read_text() != (folder / "plain.py").read_text()
    return "train.py" if changed else "finished.py"


def run(command: str) -> list[Result]:
    """Run a command in the results folder, print it and its output, and return the results that it printed.

    Raises:
        LabError: The command failed or took too long. The last lines of its errors have been printed.
    """
    env = mpirun.environment(bar=False)
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    program, *words = shlex.split(command)
    print(f"$ {command}")
    try:
        done = supervisor.complete([shutil.which(program, path=env["PATH"]) or program, *words], LIMIT, env,
                                   results_dir())
    except OSError as problem:
        raise LabError(f"`{command}` failed: {problem}") from None
    text = RANK.sub(r"rank \1: ", done.out).strip()
    print(text)
    if done.code != 0:
        print(*RANK.sub(r"rank \1: ", done.err).splitlines()[-20:], sep="\n")
        how = f"had not ended after {LIMIT} s" if done.code is None else f"ended with code {done.code}"
        raise LabError(f"`{command}` {how}; the last lines above say why")
    return [Result(int(steps), float(loss)) for steps, loss in
            re.findall(r"(\d+) steps per epoch, test loss ([\d.]+)", text)]
