"""Grading of a student's function in a separate process (labs/course/exercises/trial.py), with a time limit."""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import cloudpickle

from labs.course.exercises.grading import described, require
from labs.launch.supervisor import Outcome, complete
from labs.run.paths import python_path
from labs.run.text import printable_lines

SECONDS = 20
"""How long a function may take for all of its calls."""
SECONDS_TO_START = 90
"""How much longer the process may take; a function that uses TensorFlow imports it."""
LOADED = "loaded"
"""The file that says that the function is about to be called."""


def grade(task: str, function: Callable) -> str:
    """Return what was checked about a student's function, and print its output.

    Args:
        task: The task's id: "lab02.shard".
        function: The student's function, which may use others from the notebook.

    Raises:
        AssertionError: Says what is wrong with it.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "function.pkl").write_bytes(pickle.dumps((sys.path, task, SECONDS, _copied(function))))
        program = [sys.executable, "-P", "-m", "labs.course.exercises.trial", folder]
        outcome = complete(program, SECONDS + SECONDS_TO_START, _environment())
        has_started, file = (folder / LOADED).exists(), folder / "result.json"
        result = json.loads(file.read_text()) if file.exists() else {"wrong": _end(has_started, outcome)}
    if result.get("printed"):
        print(printable_lines(result["printed"].removesuffix("\n")))
    require("right" in result, printable_lines(result.get("wrong")))
    return result["right"]


def _copied(function: Callable) -> bytes:
    """Return a function with the functions and values of other cells that it uses."""
    try:
        with warnings.catch_warnings():  # It searches all modules for the function's name, including deprecated ones.
            warnings.simplefilter("ignore")
            return cloudpickle.dumps(getattr(function, "python_function", function))  # That of a tf.function.
    except Exception as error:
        raise AssertionError("the function uses something that cannot be copied to the process that calls it "
                             f"({described(error)}); create it inside the function") from None


def _environment() -> dict[str, str]:
    # Small inputs: more threads and a GPU only take longer to start.
    return os.environ | {"PYTHONPATH": python_path(), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
                         "MALLOC_ARENA_MAX": "2", "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}


def _end(has_started: bool, outcome: Outcome) -> str:
    """Return why the process wrote no result."""
    if not has_started:
        return f"the function could not be loaded in a separate process: it {outcome.cause}"
    if outcome.code in (None, -signal.SIGALRM):
        return f"the function had not ended after {SECONDS} s: does one of its loops never end?"
    return f"the function ended its process: it {outcome.cause if outcome.code else 'exited with code 0'}"
