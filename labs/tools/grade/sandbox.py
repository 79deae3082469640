"""A student's functions, called in a process that the kernel confines; the grader's own process never imports them."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import tempfile
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
NO_ANSWER = "it wrote something other than an answer"
CONTAINED = Path(__file__).with_name("contained.py")


class EndedError(Exception):
    """A student's function ended its process, or was ended; the text says why, as the end of a sentence."""


@contextlib.contextmanager
def opened(source: str, name: str, *, hide_files: bool = True) -> Iterator[Function]:
    """Start a process for one function of a student, for the length of a block.

    Args:
        source: The file that defines it.
        name: The function's name.
        hide_files: Whether the kernel hides all files but Python's and the kit's (`confinement.missing`).

    Raises:
        OSError: The process did not start, or could not be confined.
        AssertionError: The file cannot be run, or does not define the function.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        words = map(str, (CONTAINED, ROOT, 2 * SECONDS, MEMORY, hide_files))
        process = subprocess.Popen([sys.executable, "-I", "-B", *words], cwd=folder, env=_environment(folder),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                   start_new_session=True)
        try:
            yield Function(process, source, name)
        finally:
            process.kill()  # It cannot have started another one.
            process.communicate()


def _environment(folder: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}  # Python's, on a cluster.
    return kept | {"HOME": folder, "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Function:
    """A student's function; calling it sends the arguments to its process, and returns what that answers."""

    def __init__(self, process: subprocess.Popen, source: str, name: str):
        self._process, self._ended = process, ""
        self._requests, self._answers = cast(IO, process.stdin).fileno(), cast(IO, process.stdout).fileno()
        os.set_blocking(self._requests, False)
        self._deadline = time.monotonic() + 3 * SECONDS  # To start; a busy machine is not the student's fault.
        try:
            self._answer()
        except EndedError as problem:
            raise OSError(f"the process for a student's function did not start: {problem}") from None
        self._deadline = time.monotonic() + SECONDS
        try:
            self.__doc__ = str(self._asked({"source": source, "name": name})["doc"])
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
        answer = self._asked({"args": list(args)})
        for given, after in zip(args, answer["args"], strict=True):
            _changed(given, after)
        return answer["value"]

    def _asked(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request, make the calls that the function makes in return, and return its answer."""
        if self._ended:
            raise EndedError(self._ended)
        args = request.get("args", [])
        places = [plain.Callback(place) if callable(arg) else arg for place, arg in enumerate(args)]
        self._send(request | {"args": places} if args else request)
        while (answer := self._answer()).keys() == {"callback", "args"}:
            try:
                reply = {"value": args[answer["callback"]](*answer["args"])}
            except Exception as error:
                reply = plain.error(error)
            self._send(reply)
        if answer.keys() == {"error", "text"}:
            raise plain.raised(answer)
        if answer.keys() != ({"value", "args"} if args else {"doc"}) or len(answer.get("args", [])) != len(args):
            raise self._end(NO_ANSWER)
        return answer

    def _send(self, request: dict[str, Any]) -> None:
        rest = memoryview(plain.dumps(request))
        with contextlib.suppress(BrokenPipeError):  # Its end is found when the answer is read.
            while rest:  # The process might not read.
                self._wait([], [self._requests])
                rest = rest[os.write(self._requests, rest):]

    def _wait(self, reading: list[int], writing: list[int]) -> None:
        """Wait until a pipe is ready."""
        left = self._deadline - time.monotonic()
        if left <= 0 or not any(select.select(reading, writing, [], left)):
            raise self._end(f"it had not ended after {SECONDS} s: does one of its loops never end?")

    def _answer(self) -> dict[str, Any]:
        """Return the next answer.

        Raises:
            EndedError: There is none.
        """
        line = b""
        while not line.endswith(b"\n"):
            self._wait([self._answers], [])
            if not (read := os.read(self._answers, 1 << 16)):
                raise self._end("it ended its process")
            line += read
            if len(line) > LONGEST:
                raise self._end(f"it returned more than {LONGEST >> 20} MiB")
        with contextlib.suppress(ValueError):
            answer = plain.loads(line)
            if isinstance(answer, dict) and isinstance(answer.get("args", []), list):
                return answer
        raise self._end(NO_ANSWER)

    def _end(self, reason: str) -> EndedError:
        """Kill the process, for all further calls too, and return the error that says why."""
        self._process.kill()
        code = self._process.wait()
        self._ended = reason + f" (signal {-code})" * (reason.endswith("process") and code < 0)
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


def settings(unsafe: bool) -> tuple[bool, bool]:
    """Return whether files can be hidden from functions on this computer, and whether to call functions at all.

    Args:
        unsafe: Whether to call them even if files cannot be hidden. Nothing is called without the filter of calls.
    """
    hide_files = not confinement.missing()
    return hide_files, hide_files or (unsafe and confinement.can_filter())
