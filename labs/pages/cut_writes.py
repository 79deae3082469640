"""Kills a process at a chosen byte of a file that it writes, and looks at what is left.

    python -m labs.pages.cut_writes < FUNCTIONS

The kernel does the killing: RLIMIT_FSIZE sends SIGXFSZ to a process at the byte that exceeds the limit.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cloudpickle

from labs.run.errors import LabError
from labs.run.paths import python_path


def loaded_after(save: Callable[[str, Any], Any], load: Callable[[str], Any], states: tuple[Any, Any],
                 kills: Sequence[int]) -> list[Any]:
    """Return what loads after each kill: a process saves one state, and is killed while it saves the next one.

    Args:
        save: Takes a path and a state, and writes it.
        load: Takes the path, and returns the state.
        states: The state that is saved completely, and the one whose save is cut.
        kills: The bytes at which to kill.

    Returns:
        For each kill what `load` returned, a number or text, or the name of the error that it raised.
    """
    with warnings.catch_warnings():  # cloudpickle searches all modules, including deprecated ones.
        warnings.simplefilter("ignore")
        task = cloudpickle.dumps((sys.path, save, load, states, list(kills)))
    done = subprocess.run([sys.executable, "-m", "labs.pages.cut_writes"], input=task, capture_output=True,
                          check=False, env=os.environ | {"PYTHONPATH": python_path(), "OPENBLAS_NUM_THREADS": "1"})
    if done.returncode:
        errors = done.stderr.decode(errors="replace").strip() or "the process ended without a message"
        raise LabError(errors.splitlines()[-1])
    return list(json.loads(done.stdout))


def _main() -> None:
    """Do as `loaded_after` says, in a process with one thread, which may fork."""
    path, save, load, states, kills = pickle.loads(sys.stdin.buffer.read())
    sys.path[:] = path
    left = []
    for kill in kills:
        with tempfile.TemporaryDirectory() as name:
            file = str(Path(name) / "checkpoint")
            save(file, states[0])
            _save_and_die(save, file, states[1], kill)
            try:
                left.append(load(file))
            except Exception as error:  # A cut file makes a reader raise almost anything.
                left.append(type(error).__name__)
    print(json.dumps(left, default=str))


def _save_and_die(save: Callable[[str, Any], Any], file: str, state: Any, kill: int) -> None:
    """Save in a process that the kernel kills at a byte."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it, and would go on with an error.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (kill, kill))
        save(file, state)
    except BaseException:
        traceback.print_exc()
    os._exit(0)


if __name__ == "__main__":
    _main()
