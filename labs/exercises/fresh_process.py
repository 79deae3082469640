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

import msgspec

from labs.exercises import child
from labs.exercises.code_tasks import Answer, Task
from labs.exercises.grading import NoAnswerError, NotInstalledError
from labs.run import environment
from labs.run.paths import ROOT, work_dir
from labs.run.text import printable

SECONDS = 20
"""How long all calls of a function may take. Its process may use the processor for four times as long."""
SECONDS_TO_DEFINE = 60
"""How long the process may take to start and run the cell, which may import TensorFlow."""
LONGEST = 1 << 20
"""The most bytes of an answer."""
PRINTED = 1000
"""How many characters of the cell's output are shown."""
CHILD = Path(child.__file__)


def cell_of(function: Callable[..., Any]) -> tuple[str, int]:
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
    """Return what was checked about the function of a cell, and print what the cell prints.

    Args:
        name: The task's id: "lab02.shard".
        task: The task.
        cell: The text of the cell.
        owner: The student's id, which decides some of the inputs; "" if it is not known.
        container: The command that runs a command in a container, which discards what the cell prints.
        line: The line of the cell at which the function begins; 0: the cell says which function it is.

    Raises:
        AssertionError: Says what is wrong with the function; NoAnswerError if the cell cannot run alone.
    """
    function = task.stub.__name__ if task.stub else name
    with contextlib.ExitStack() as stack, tempfile.TemporaryFile() as printed:
        def start(hash_seed: int) -> Process:
            return stack.enter_context(started(cell, function, hash_seed, container, printed))

        second = functools.cache(lambda: start(2))
        try:
            first = start(1)
            if line not in (0, first.line):
                raise NoAnswerError(f"the function given is not the `{function}` of its cell: define `{function}` in "
                                    "this cell")
            seed = environment.personal_seed(f"{owner}/{name}")
            return task.grade(first.call, seed, lambda args: second().call(args), first.doc)
        finally:
            if container is None:
                _show(printed)


def _show(printed: IO[bytes]) -> None:
    length = printed.seek(0, os.SEEK_END)
    printed.seek(0)
    if text := printed.read(PRINTED).decode(errors="replace").rstrip("\n"):
        print(text + f"... ({length:,} characters)" * (length > PRINTED))


@contextlib.contextmanager
def started(cell: str, name: str, hash_seed: int = 1, container: Sequence[str] | None = None,
            printed: IO[bytes] | int = subprocess.DEVNULL) -> Iterator[Process]:
    """Start a process that has run a cell, for the length of a block.

    Args:
        cell: The text of the cell.
        name: The name of its function.
        hash_seed: Python's PYTHONHASHSEED: two processes with different ones show whether a result depends on Python's
            hash() of a string.
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
            yield Process(process, cell, name)
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


class Process:
    """A process that has run a cell, and calls its function."""

    def __init__(self, process: subprocess.Popen, cell: str, name: str):
        self._process = process
        self._seconds = self._left = float(SECONDS_TO_DEFINE)
        begun = self.call([cell, name])
        if begun.error:
            raise NoAnswerError(f"the cell cannot run alone, in a fresh process: {begun.problem}")
        about = begun.value if isinstance(begun.value, dict) else {}
        self.doc, self.line = str(about.get("doc")), about.get("line")
        self._seconds = self._left = SECONDS

    def call(self, args: Sequence[Any]) -> Answer:
        """Call the function in the process, and return its answer; arguments that are functions are called here.

        Raises:
            AssertionError: The process has ended, or the cell needs what it does not define.
        """
        places = [place for place, arg in enumerate(args) if callable(arg)]
        answer = self._answer(([None if place in places else arg for place, arg in enumerate(args)], places))
        while answer.call in places:
            reply: tuple[Any, Exception | None]
            try:
                reply = args[answer.call](*answer.args), None
            except Exception as problem:
                reply = None, problem
            answer = self._answer(reply)
        if answer.needs:
            kind = NotInstalledError if answer.error == "ModuleNotFoundError" else NoAnswerError
            raise kind(printable(answer.needs))
        if answer.call is not None or len(answer.args) != len(args) * (not answer.error):
            raise self._end("it wrote something other than an answer")
        return answer

    def _answer(self, request: tuple) -> Answer:
        """Send a request, and return the next answer.

        Raises:
            AssertionError: There is none.
        """
        requests, answers = cast(IO, self._process.stdin), cast(IO, self._process.stdout)
        # The process might neither read nor write; at its end, both pipes are closed.
        timer = threading.Timer(self._left, os.killpg, (self._process.pid, signal.SIGKILL))
        began = time.monotonic()
        timer.start()
        try:
            with contextlib.suppress(BrokenPipeError):
                requests.write(pickle.dumps(request))
                requests.flush()
            line = answers.readline(LONGEST + 1)
        finally:
            timer.cancel()
            self._left -= time.monotonic() - began
        if len(line) > LONGEST:
            raise self._end(f"it returned more than {LONGEST >> 20} MiB")
        if not line.endswith(b"\n"):
            late = self._left <= 0
            raise self._end(f"it had not ended after {self._seconds:g} s: does one of its loops never end?" * late)
        try:
            return msgspec.convert(child.loads(line), Answer)
        except ValueError:
            raise self._end("it wrote something other than an answer") from None

    def _end(self, reason: str) -> AssertionError:
        """Kill the process, and return the error that says why; an empty reason means that it ended itself."""
        self._process.kill()
        code = self._process.wait()
        ended = "it ended its process" + f" (signal {-code})" * (code < 0)
        return AssertionError(f"the function failed: {reason or ended}")
