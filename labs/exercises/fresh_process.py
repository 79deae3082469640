"""An exercise's cell, run in fresh processes: the notebook's `check` and `labs grade` judge the same text alike."""

import contextlib
import functools
import inspect
import linecache
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from labs.exercises import child
from labs.exercises.code_tasks import Asker, StudentFunction, Task
from labs.exercises.grading import NoAnswerError, NotInstalledError, format_value, require, shorten
from labs.run import environment
from labs.run.errors import ERROR_PREFIX
from labs.run.paths import ROOT
from labs.run.supervisor import complete

SECONDS, SECONDS_OF_WORKERS = 30, 90
"""How long a process may take, to run the cell and for all calls of its function; workers load TensorFlow, too."""
LONGEST = 1 << 20
"""The most bytes of an answer."""
CHILD = Path(child.__file__)
LIMITS = f"ulimit -v {6 << 20}; ulimit -f {64 << 10}; ulimit -c 0; ulimit -t {SECONDS}; "
"""KiB of memory and of a file, no core file, and seconds, if the process that asks is gone."""
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1",
               "TF_NUM_INTEROP_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "MALLOC_ARENA_MAX": "2", "LC_ALL": "C.UTF-8"}


def find_cell(function: Any, name: str) -> str:
    """Return the text of the cell, or of the file, that defines a function; NoAnswerError if there is none."""
    if not callable(function):
        raise NoAnswerError(f"the answer is the function `{name}`, not {format_value(function)}")
    inner = inspect.unwrap(function)
    text = "".join(linecache.getlines(inner.__code__.co_filename)) if hasattr(inner, "__code__") else ""
    if not text:
        raise NoAnswerError("the source of the function was not found; define it with `def` in a cell, without %%time")
    if inner.__globals__.get(name, function) is not function:
        raise NoAnswerError(f"the function given is not the page's `{name}`: define `{name}` in this cell")
    return text


def grade(name: str, task: Task, cell: str, owner: str, container: Sequence[str]) -> str:
    """Return what was checked about the function of a cell; AssertionError says what is wrong with it.

    The arguments are those of `exercises.grade`.
    """
    function = name.partition(".")[2]
    with contextlib.ExitStack() as stack:
        start = functools.cache(lambda number: stack.enter_context(start_process(cell, function, number, container)))
        rng = np.random.default_rng(environment.personal_seed(f"{owner}/{name}"))
        return task.grade(StudentFunction(function, task.arguments, start, rng, cell))


@contextlib.contextmanager
def start_process(cell: str, name: str, hash_seed: int = 1, container: Sequence[str] = ()) -> Iterator[Asker]:
    """Yield what calls the function of a cell in a process of its own; NoAnswerError if the cell cannot run alone.

    Two processes with different seeds show whether a result depends on Python's hash() of a string.
    """
    # The kernel counts all processes of a user: a limit would hold for the notebook, too.
    limits, program = (LIMITS + "ulimit -u 64; ", f"/{CHILD.name}") if container else (LIMITS, CHILD)
    command = [*container, "/bin/bash", "-c", f'{limits} exec "$@"', "-", sys.executable, "-P", "-s", "-B", program]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        passed = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "PATH") if name in os.environ}
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=passed | ENVIRONMENT | {"PYTHONHASHSEED": str(hash_seed), "HOME": folder}, start_new_session=True)
        end = time.monotonic() + SECONDS
        timer = threading.Timer(SECONDS, os.killpg, (process.pid, signal.SIGKILL))
        timer.start()
        try:
            ask = functools.partial(_ask, process, end)
            if problem := ask([cell, name]).get("error"):
                raise NoAnswerError(f"the cell cannot run alone, in a fresh process: {shorten(problem)}")
            yield ask
        finally:
            timer.cancel()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # With what the function started.
            process.communicate()


def _ask(process: subprocess.Popen, end: float, args: Sequence[Any]) -> dict[str, Any]:
    """Return the answer to a call; AssertionError if the process has ended, or the cell needs what it lacks."""
    calls, answers, line = cast(IO, process.stdin), cast(IO, process.stdout), b""
    with contextlib.suppress(BrokenPipeError):
        calls.write(pickle.dumps(args))
        calls.flush()
        line = answers.readline(LONGEST + 1)
    late = f"it had not ended after {SECONDS} s: does one of its loops never end?" * (time.monotonic() >= end)
    require(line.endswith(b"\n"), f"the function failed: {late or 'it ended its process, or returned too much'}")
    answer = child.loads(line)
    if answer.get("needs"):
        raise (NotInstalledError if answer["not_installed"] else NoAnswerError)(shorten(answer["needs"]))
    return answer


def grade_step(cell: str) -> str:
    """Run the train step of a cell on two real workers; return what was checked, or raise AssertionError."""
    if re.search(r'"""\s*\.\.\.  # YOUR CODE\s*(\n\S|\Z)', cell):
        raise NoAnswerError("no answer yet: `step` does nothing")
    # A lab that ran in this process has left its settings of Horovod, such as the transport.
    env = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}
    env["CUDA_VISIBLE_DEVICES"] = "-1"  # NCCL refuses two workers on one GPU.
    launch = [sys.executable, "-m", "labs", "launch", "2", "--oversubscribe", "--stall-seconds", 20]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "step.py")
        path.write_text(cell, encoding="utf-8")
        outcome = complete([*launch, ROOT / "labs/training/step_trial.py", CHILD, path], SECONDS_OF_WORKERS, env, ROOT)
    last = outcome.err.rstrip().rpartition("\n")[2].removeprefix(ERROR_PREFIX)
    if re.match(r"rank \d+ on \S+: (NameError|ModuleNotFoundError)", last):
        raise NoAnswerError(f"this cell runs alone, and lacks something; define or import it here: {shorten(last)}")
    require(not outcome.code, re.sub(r"^rank \d+ on \S+: AssertionError: ", "", last) or outcome.cause)
    require(outcome.code == 0, f"the steps do not end in {SECONDS_OF_WORKERS} s")
    return "after 3 steps on two real workers their weights are equal, and equal to those of one worker on both batches"
