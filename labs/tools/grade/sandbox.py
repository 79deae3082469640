"""A student's functions, called in a process that the kernel confines; the grader's own process never imports them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from labs.run.paths import ROOT
from labs.tools.grade import confinement, plain

SECONDS = 20
"""How long a function may take for all of its calls. Its process may use the processor for twice as long."""
MEMORY = 1 << 30
"""How many bytes of memory a function may use."""
LONGEST = 1 << 20
"""The most bytes of an answer."""
CONTAINED = Path(__file__).with_name("contained.py")


class EndedError(Exception):
    """A student's function ended its process, or was ended; the text says why, as the end of a sentence."""


@contextlib.contextmanager
def opened(source: str, name: str, *, unsafe: bool = False) -> Iterator[Function]:
    """Start a process for one function of a student, for the length of a block.

    Args:
        source: The file that defines it.
        name: The function's name.
        unsafe: Whether to call it even where the kernel cannot hide files from it (`confinement.missing`).

    Raises:
        OSError: The process did not start, or cannot be confined.
        AssertionError: The file cannot be run, or does not define the function.
    """
    if confinement.missing(unsafe):
        raise OSError("functions cannot be confined on this computer")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        words = map(str, (CONTAINED, ROOT, 2 * SECONDS, MEMORY, not confinement.missing()))
        process = subprocess.Popen([sys.executable, "-I", "-B", *words], cwd=folder, env=_environment(folder),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                   start_new_session=True)
        try:
            yield Function(process, source, name)
        finally:
            process.kill()  # It cannot have started another one.
            process.communicate()


def _environment(folder: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"}  # Python's, on a cluster.
    return kept | {"HOME": folder, "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Function:
    """A student's function; calling it sends the arguments to its process, and returns what that answers."""

    def __init__(self, process: subprocess.Popen, source: str, name: str):
        self._process, self._ended = process, ""
        self._deadline = time.monotonic() + 3 * SECONDS  # To start; a busy machine is not the student's fault.
        try:
            self._answer(b"")
        except EndedError as problem:
            raise OSError(f"the process for a student's function did not start: {problem}") from None
        self._deadline = time.monotonic() + SECONDS
        try:
            self.__doc__ = str(self._asked({"source": source, "name": name}, "doc"))
        except EndedError:
            raise
        except Exception as error:
            raise AssertionError(f"the file of the function cannot be run: {type(error).__name__}: {error}") from None

    def __call__(self, *args: Any) -> Any:
        """Call the function; the arguments become what it has made of them.

        Raises:
            EndedError: The process has ended.
            Exception: Whatever the function raised, as the first of its classes that Python has itself.
        """
        callbacks = [place for place, arg in enumerate(args) if callable(arg)]
        return self._asked({"args": list(args), "callbacks": callbacks}, "value", *args)

    def _asked(self, request: dict[str, Any], name: str, *args: Any) -> Any:
        """Send a request, make the calls that the function makes in return, and return what the answer has by name."""
        answer = self._answer(plain.dumps(request))
        while answer.keys() == {"callback", "args"}:
            try:
                reply = {"value": args[answer["callback"]](*answer["args"])}
            except Exception as error:
                reply = plain.error(error)
            answer = self._answer(plain.dumps(reply))
        if answer.keys() == {"error", "text"}:
            raise plain.raised(answer)
        if answer.keys() != {name, "args"} or len(answer["args"]) != len(args):
            raise self._end("it wrote something other than an answer")
        for given, after in zip(args, answer["args"], strict=True):
            _changed(given, after)
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
        timer = threading.Timer(self._deadline - time.monotonic(), self._process.kill)
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
            raise self._end(f"it had not ended after {SECONDS} s: does one of its loops never end?" if late else "")
        with contextlib.suppress(ValueError):
            answer = plain.loads(line)
            if isinstance(answer, dict) and isinstance(answer.get("args", []), list):
                return answer
        raise self._end("it wrote something other than an answer")

    def _end(self, reason: str) -> EndedError:
        """Kill the process, for all further calls too, and return the error that says why; "": it ended itself."""
        self._process.kill()
        code = self._process.wait()
        self._ended = reason or "it ended its process" + f" (signal {-code})" * (code < 0)
        return EndedError(self._ended)


def _changed(given: Any, after: Any) -> None:
    """Make a mutable argument equal to what the function has made of it."""
    if isinstance(given, np.ndarray):
        if isinstance(after, np.ndarray) and after.shape == given.shape:
            given[...] = after
    elif isinstance(given, list):
        given[:] = after if isinstance(after, list) else given
    elif isinstance(given, dict) and isinstance(after, dict):
        given.clear()
        given.update(after)
