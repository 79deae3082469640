"""An exercise's cell, run in a fresh process: the notebook's `check` and `labs grade` judge the same text alike."""

from __future__ import annotations

import contextlib
import functools
import linecache
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from labs.exercises import child
from labs.exercises.code_tasks import StudentFunction, Task, format_raised
from labs.exercises.grading import NoAnswerError, NotInstalledError
from labs.run import environment
from labs.run.text import printable

SECONDS = 20
"""How long all calls of a function may take. Its process may use the processor for four times as long."""
SECONDS_TO_DEFINE = 60
"""How long the process may take to start and run the cell, which may import TensorFlow."""
LONGEST = 1 << 20
"""The most bytes of an answer."""
CHILD = Path(child.__file__)


def find_cell(function: Callable[..., Any]) -> tuple[str, int]:
    """Return the text of the cell, or of the file, that defines a function, and its line; magics are calls of IPython.

    Raises:
        NoAnswerError: The source was not found.
    """
    code = child.code_of(function)
    text = "".join(linecache.getlines(code.co_filename)) if code else ""
    if code is None or not text:
        raise NoAnswerError("the source of the function was not found; define it with `def` in a cell, without %%time")
    return text, code.co_firstlineno


def grade(name: str, task: Task, cell: str, owner: str, container: Sequence[str] | None = None, line: int = 0) -> str:
    """Return what was checked about the function of a cell.

    Args:
        name: The task's id: "lab02.shard".
        task: The task.
        cell: The text of the cell.
        owner: The student's id, which decides some of the inputs; "" if it is not known.
        container: The command that runs a command in a container.
        line: The line of the cell at which the function begins; 0: the cell says which function it is.

    Raises:
        AssertionError: Says what is wrong with the function; NoAnswerError if the cell cannot run alone.
    """
    function = name.partition(".")[2]
    with contextlib.ExitStack() as stack:
        def start(hash_seed: int) -> CellProcess:
            return stack.enter_context(start_process(cell, function, hash_seed, container))

        first, second = start(1), functools.cache(lambda: start(2))
        if line not in (0, first.line):
            raise NoAnswerError(f"the function given is not the `{function}` of its cell: define `{function}` in this "
                                "cell")
        rng = np.random.default_rng(environment.personal_seed(f"{owner}/{name}"))
        return task.grade(StudentFunction(function, task.arguments, first.call, rng,
                                          lambda args: second().call(args), first.doc))


@contextlib.contextmanager
def start_process(cell: str, name: str, hash_seed: int = 1,
                  container: Sequence[str] | None = None) -> Iterator[CellProcess]:
    """Start a process that has run a cell, for the length of a block; AssertionError if the cell cannot be run.

    Two processes with different seeds show whether a result depends on Python's hash() of a string.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        program = [CHILD, 4 * SECONDS] if container is None else [f"/{CHILD.name}", 4 * SECONDS, "confined"]
        words = [*(container or ()), sys.executable, "-P", "-s", "-B", *program]
        process = subprocess.Popen(list(map(str, words)), cwd=folder, env=_environment(folder, hash_seed),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                   start_new_session=True)
        try:
            yield CellProcess(process, cell, name)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # With what the function started.
            process.communicate()


def _environment(folder: str, hash_seed: int) -> dict[str, str]:
    passed = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "PATH") if name in os.environ}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TF_NUM_INTRAOP_THREADS",
                             "TF_NUM_INTEROP_THREADS"), "1")
    return passed | threads | {"PYTHONHASHSEED": str(hash_seed), "HOME": folder, "LC_ALL": "C.UTF-8",
                               "CUDA_VISIBLE_DEVICES": "-1", "MALLOC_ARENA_MAX": "2"}


class CellProcess:
    """A process that has run a cell, and calls its function."""

    def __init__(self, process: subprocess.Popen, cell: str, name: str):
        self._process, self._seconds = process, float(SECONDS_TO_DEFINE)
        self._left = self._seconds
        begun = self.call([cell, name])
        if begun.get("error"):
            raise NoAnswerError(f"the cell cannot run alone, in a fresh process: {format_raised(begun)}")
        self.doc, self.line = begun["value"]["doc"], begun["value"]["line"]
        self._seconds = self._left = SECONDS

    def call(self, args: Sequence[Any]) -> dict[str, Any]:
        """Call the function, and return its "value" and "args" after the call, or "error", "refused" and "text".

        Raises:
            AssertionError: The process has ended, or the cell needs what it does not define.
        """
        line = self._exchange(pickle.dumps(args))
        try:
            answer = child.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or not ({"error", "text"} <= answer.keys() or "value" in answer):
            raise self._end("it wrote something other than an answer")
        if needs := answer.get("needs"):
            raise (NotInstalledError if answer["error"] == "ModuleNotFoundError" else NoAnswerError)(printable(needs))
        return answer

    def _exchange(self, request: bytes) -> bytes:
        """Send a request, and return the line that answers it."""
        calls, answers = cast(IO, self._process.stdin), cast(IO, self._process.stdout)
        # The process might neither read nor write; at its end, both pipes are closed.
        timer = threading.Timer(self._left, os.killpg, (self._process.pid, signal.SIGKILL))
        began = time.monotonic()
        timer.start()
        try:
            with contextlib.suppress(BrokenPipeError):
                calls.write(request)
                calls.flush()
            line = answers.readline(LONGEST + 1)
        finally:
            timer.cancel()
            self._left -= time.monotonic() - began
        if len(line) > LONGEST:
            raise self._end(f"it returned more than {LONGEST >> 20} MiB")
        if not line.endswith(b"\n"):
            late = self._left <= 0
            raise self._end(f"it had not ended after {self._seconds:g} s: does one of its loops never end?" * late)
        return line

    def _end(self, reason: str) -> AssertionError:
        """Kill the process, and return the error that says why; an empty reason means that it ended itself."""
        self._process.kill()
        code = self._process.wait()
        ended = "it ended its process" + f" (signal {-code})" * (code < 0)
        return AssertionError(f"the function failed: {reason or ended}")
