"""An exercise's cell, run in a fresh process: the notebook's `check` and `labs grade` judge the same text alike."""

from __future__ import annotations

import contextlib
import functools
import linecache
import os
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

from labs.course.exercises import child
from labs.course.exercises.code_tasks import Task
from labs.course.exercises.grading import NoAnswerError, require
from labs.run import student
from labs.run.paths import ROOT, work_dir
from labs.run.text import printable, printable_lines

SECONDS = 20
"""How long a function may take for all of its calls. Its process may use the processor for four times as long."""
SECONDS_TO_DEFINE = 60
"""How long the process may take to start and run the cell, which may import TensorFlow."""
LONGEST = 1 << 20
"""The most bytes of an answer."""
PRINTED = 1000
"""How many characters of the cell's output are shown."""
CHILD = Path(child.__file__)


def cell_of(function: Callable[..., Any]) -> str:
    """Return the text of the cell, or of the file, that defines a function; magics in it are calls of IPython.

    Raises:
        AssertionError: It is not found.
    """
    text = "".join(linecache.getlines(_file_of(function)))
    require(text, "the source of the function was not found; define it with `def` in a cell, without %%time")
    return text


def _file_of(function: Any) -> str:
    """Return the file that a function is from, also of a partial, a decorated function or a callable object."""
    for _ in range(10):
        inner = [getattr(function, name) for name in ("__wrapped__", "__func__", "func", "python_function", "pyfunc")
                 if hasattr(function, name)]
        if not inner and hasattr(function, "__code__"):
            return function.__code__.co_filename
        function = inner[0] if inner else type(function).__call__
    return ""


def grade(name: str, task: Task, cell: str, owner: str, container: Sequence[str] | None = None) -> str:
    """Return what was checked about the function of a cell, and print what the cell prints.

    Args:
        name: The task's id: "lab02.shard".
        task: The task.
        cell: The text of the cell.
        owner: The student's id, which decides some of the inputs; "" if it is not known.
        container: The command that runs a command in a container, which discards what the cell prints.

    Raises:
        AssertionError: Says what is wrong with it; NoAnswerError if the cell cannot run alone.
    """
    function_name = task.stub.__name__ if task.stub else name
    with contextlib.ExitStack() as stack, tempfile.TemporaryFile() as printed:
        def start(hash_seed: int) -> Function:
            return stack.enter_context(started(cell, function_name, hash_seed, container, printed))

        second = functools.cache(lambda: start(2))
        try:
            return task.grade(start(1), student.personal_seed(f"{owner}/{name}"), lambda *args: second()(*args))
        except EndedError as ended:
            raise AssertionError(str(ended)) from None
        finally:
            if container is None:
                _show(printed)


def _show(printed: IO[bytes]) -> None:
    length = printed.seek(0, os.SEEK_END)
    printed.seek(0)
    if text := printable_lines(printed.read(PRINTED).decode(errors="replace").rstrip("\n")):
        print(text + f"... ({length:,} characters)" * (length > PRINTED))


class EndedError(BaseException):
    """A process that runs a cell has ended, or was ended; the text says why. A grader does not catch it."""


@contextlib.contextmanager
def started(cell: str, name: str, hash_seed: int = 1, container: Sequence[str] | None = None,
            printed: IO[bytes] | int = subprocess.DEVNULL) -> Iterator[Function]:
    """Start a process that has run a cell, for the length of a block.

    Args:
        cell: The text of the cell.
        name: The name of its function.
        hash_seed: Python's PYTHONHASHSEED: two processes with different ones show whether a result depends on hash().
        container: As in `grade`.
        printed: The file that gets what the cell prints.

    Raises:
        AssertionError: The cell cannot be run, or defines no function.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        program = [CHILD, 4 * SECONDS] if container is None else [f"/{CHILD.name}", 4 * SECONDS, "confined"]
        words = [*(container or ()), sys.executable, "-P", "-s", "-B", *program]
        process = subprocess.Popen(list(map(str, words)), cwd=folder, env=_environment(folder, hash_seed),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=printed,
                                   start_new_session=True)
        try:
            yield Function(process, cell, name)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # With what the function started.
            process.communicate()


def module_path() -> list[str]:
    """Return the folders of PYTHONPATH, where a cluster may have numpy, without those of the kit and of notebooks."""
    own = {ROOT, work_dir().resolve(), Path.cwd()}
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep)
            if os.path.isabs(path) and Path(path).resolve() not in own]


def _environment(folder: str, hash_seed: int) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "PATH") if name in os.environ}
    return kept | {"PYTHONPATH": os.pathsep.join(module_path()), "PYTHONHASHSEED": str(hash_seed), "HOME": folder,
                   "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
                   "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1",
                   "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2", "MALLOC_ARENA_MAX": "2"}


class Function:
    """The function of a cell; calling it sends the arguments to its process, and returns what that answers."""

    def __init__(self, process: subprocess.Popen, cell: str, name: str):
        self._process, self._ended = process, ""
        self._seconds, self._deadline = SECONDS_TO_DEFINE, time.monotonic() + SECONDS_TO_DEFINE
        try:
            self.__doc__ = str(self._asked({"cell": cell, "name": name}, "doc"))
        except (EndedError, AssertionError):
            raise
        except Exception as error:
            problem = printable(f"{type(error).__name__}: {error}")
            raise NoAnswerError(f"the cell cannot run alone, in a fresh process: {problem}") from None
        self._seconds, self._deadline = SECONDS, time.monotonic() + SECONDS

    def __call__(self, *args: Any) -> Any:
        """Call the function; the arguments become what it has made of them.

        Raises:
            EndedError: The process has ended.
            NoAnswerError: The cell needs something that it does not define.
            Exception: Whatever the function raised, as the first of its classes that Python has itself.
        """
        callbacks = [place for place, arg in enumerate(args) if callable(arg)]
        return self._asked({"args": list(args), "callbacks": callbacks}, "value", *args)

    def _asked(self, request: dict[str, Any], name: str, *args: Any) -> Any:
        """Send a request, make the calls that the function makes in return, and return what the answer has by name."""
        answer = self._answer(child.dumps(request))
        while answer.keys() == {"callback", "args"}:
            try:
                reply = {"value": args[answer["callback"]](*answer["args"])}
            except Exception as error:
                reply = child.described(error)
            answer = self._answer(child.dumps(reply))
        if answer.keys() == {"error", "text", "needs"}:
            if answer["needs"]:
                raise NoAnswerError(printable(answer["needs"]))
            raise child.raised(answer)
        if answer.keys() != {name, "args"} or len(answer["args"]) != len(args):
            raise self._end("it wrote something other than an answer")
        for given, after in zip(args, answer["args"], strict=True):
            _change(given, after)
        return answer[name]

    def _answer(self, request: bytes) -> dict[str, Any]:
        """Send a request, and return the next answer.

        Raises:
            EndedError: There is none.
        """
        if self._ended:
            raise EndedError(self._ended)
        requests, answers = cast(IO, self._process.stdin), cast(IO, self._process.stdout)
        # The process might neither read nor write; at its end, both pipes are closed.
        timer = threading.Timer(self._deadline - time.monotonic(), os.killpg, (self._process.pid, signal.SIGKILL))
        timer.start()
        try:
            with contextlib.suppress(BrokenPipeError):
                requests.write(request)
                requests.flush()
            line = answers.readline(LONGEST + 1)
        finally:
            timer.cancel()
        if len(line) > LONGEST:
            raise self._end(f"it returned more than {LONGEST >> 20} MiB")
        if not line.endswith(b"\n"):
            late = time.monotonic() >= self._deadline
            raise self._end(f"it had not ended after {self._seconds} s: does one of its loops never end?" * late)
        with contextlib.suppress(ValueError):
            answer = child.loads(line)
            if isinstance(answer, dict) and isinstance(answer.get("args", []), list):
                return answer
        raise self._end("it wrote something other than an answer")

    def _end(self, reason: str) -> EndedError:
        """Kill the process, for all further calls too, and return the error that says why; "": it ended itself."""
        self._process.kill()
        code = self._process.wait()
        ended = "it ended its process" + f" (signal {-code})" * (code < 0)
        self._ended = f"the function failed: {reason or ended}"
        return EndedError(self._ended)


def _change(given: Any, after: Any) -> None:
    """Make a mutable argument equal to what the function has made of it."""
    if isinstance(given, np.ndarray):
        if isinstance(after, np.ndarray) and after.shape == given.shape:
            given[...] = after
    elif isinstance(given, list):
        given[:] = after if isinstance(after, list) else given
    elif isinstance(given, dict) and isinstance(after, dict):
        given.clear()
        given.update(after)
