"""Supervision of a launcher: starts it, passes its output on, and ends it with all of its workers."""

import contextlib
import dataclasses
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from io import BufferedReader
from pathlib import Path
from typing import IO, cast

import psutil

from labs.run import failure, terminal, worker
from labs.run.errors import ERROR_PREFIX, Interrupted

SECONDS_TO_SAVE, SECONDS_TO_END, SECONDS_AFTER_ERROR = 20.0, 5.0, 2.0
"""The longest times: to save after Ctrl-C, to end when asked to, and for mpirun to end after a worker has failed."""


@contextlib.contextmanager
def started(command: Sequence[str], env: Mapping[str, str] | None = None,
            folder: Path | None = None) -> Iterator[subprocess.Popen]:
    """Run a program during the block; if the block or this process ends, in any way, its processes end too.

    Ctrl-Z stops the program with this process, and `fg` continues both: the terminal's signals do not reach another
    session. mpirun passes them on to the workers of all nodes.
    """
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                               env=env, cwd=folder, start_new_session=True, preexec_fn=worker.end_with_parent)

    def stop(*_) -> None:
        _suspend(process, signal.SIGTSTP)
        os.kill(os.getpid(), signal.SIGSTOP)

    try:
        with worker.signal_handlers({signal.SIGTSTP: stop,
                                     signal.SIGCONT: lambda *_: _suspend(process, signal.SIGCONT)}):
            yield process
    finally:
        _end(process)


def _suspend(process: subprocess.Popen, number: signal.Signals) -> None:
    """Stop or continue a program; the kernel ignores SIGTSTP in a session without a terminal, and mpirun handles it."""
    if Path(cast(list[str], process.args)[0]).name == "mpirun":
        process.send_signal(number)
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        for each in _family(process):
            each.suspend() if number == signal.SIGTSTP else each.resume()


def _family(process: subprocess.Popen) -> list[psutil.Process]:
    """Return a program's process and all that it has started; horovodrun's have sessions of their own."""
    launcher = psutil.Process(process.pid)
    return [launcher, *launcher.children(recursive=True)]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a program ended, and its output."""

    code: int | None
    """None: it did not end in time."""
    out: str
    err: str

    @property
    def cause(self) -> str:
        """Why the program failed, as the end of a sentence that begins with its name."""
        return "did not end in time" if self.code is None else failure.explain_exit(self.code, self.err)


def finish(process: subprocess.Popen, seconds: float) -> Outcome:
    """Wait for a program from `started`, and return its outcome."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return Outcome(None, "", "")
    return Outcome(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))


def complete(command: Sequence[object], seconds: float, env: Mapping[str, str] | None = None,
             folder: Path | None = None) -> Outcome:
    """Run a program in a folder to its end or to the time limit; all processes that it started end too."""
    with started([str(word) for word in command], env, folder) as process:
        return finish(process, seconds)


def supervise(command: Sequence[str], env: Mapping[str, str], log: IO[str] | None, diagnosis: failure.Diagnosis,
              is_mpirun: bool, saves: bool = True) -> int:
    """Run the launcher to its end and return its exit code; if this process ends, in any way, the workers end too.

    Args:
        log: Where to forward the output; the terminal, if None.
        is_mpirun: The launcher passes signals on, and ends with the first worker that fails.
        saves: The workers are a lab's: they save their state after Ctrl-C.
    """
    readers, deadline = [], math.inf
    try:
        with noted_signals(*worker.REQUESTS) as requests, started(command, env) as process:
            readers = pass_output_on(process, log, diagnosis)
            while process.poll() is None and requests.count < 2 and diagnosis.clock.now() < deadline:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.3)
                if requests.count and deadline == math.inf:
                    deadline = diagnosis.clock.now() + _ask_to_save(process, is_mpirun and saves)
                if is_mpirun:
                    _end_if_failed(process, diagnosis)
    finally:
        for reader in readers:
            reader.join(timeout=2)
    if requests.count:
        raise Interrupted
    return process.returncode


def _ask_to_save(process: subprocess.Popen, saves: bool) -> float:
    """Have the workers save and stop after the current step, if they can; return how many seconds they have."""
    if not saves:
        return 0.0
    with contextlib.suppress(OSError):  # The terminal has been closed.
        terminal.note("saving; Ctrl-C again ends the run at once")
    process.send_signal(worker.SIGNAL)  # mpirun passes it on to the workers on all nodes.
    return SECONDS_TO_SAVE


def _end_if_failed(process: subprocess.Popen, diagnosis: failure.Diagnosis) -> None:
    """End mpirun if it hangs after a failure: it waits forever for a node that does not respond."""
    if problem := diagnosis.find_problem():
        diagnosis.add_error(problem)
    if diagnosis.is_over() or (diagnosis.error and diagnosis.clock.now() - diagnosis.error_time > SECONDS_AFTER_ERROR):
        _end(process, SECONDS_AFTER_ERROR)


def pass_output_on(process: subprocess.Popen, log: IO[str] | None, diagnosis: failure.Diagnosis
                   ) -> list[threading.Thread]:
    """Start threads that forward a program's output, and return them; they end when the program has ended."""
    streams = (process.stdout, log or sys.stdout, False), (process.stderr, log or sys.stderr, True)
    readers = [threading.Thread(target=_pass_on, args=(source, target, diagnosis, errors), daemon=True)
               for source, target, errors in streams]
    for reader in readers:
        reader.start()
    return readers


def _pass_on(source: BufferedReader, target: IO[str], diagnosis: failure.Diagnosis, errors: bool) -> None:
    """Forward a stream, but leave its error lines and the launcher's boxed messages to the diagnosis.

    A closed terminal takes no more output, but the stream must still be read: workers that save would block.
    """
    in_box = False
    for text in _chunks(source):
        text = re.sub(r"^\[\d+\]<std(?:out|err)>:", "", text)  # horovodrun adds it.
        if errors and text.startswith(failure.BOX):
            in_box = not in_box
        elif in_box:
            diagnosis.launcher_message += f"{text.strip()} "
        elif errors and ERROR_PREFIX in text:
            diagnosis.add_error(text.split(ERROR_PREFIX, 1)[1])
        else:
            if not errors and failure.LOST_NODE.search(text):
                diagnosis.launcher_message += f"{text.strip()} "
            with contextlib.suppress(OSError, ValueError):
                terminal.write(text, target)


def _chunks(source: BufferedReader) -> Iterator[str]:
    """Yield lines, and texts that end in a carriage return: a progress bar has no line end."""
    rest = b""
    while data := source.read1(65536):
        # Inside Slurm, Open MPI's launcher ends its boxes with a NUL.
        *complete_lines, rest = re.split(rb"(?<=\n)|(?<=\r)(?!\n)", rest + data.replace(b"\0", b""))
        yield from (line.decode(errors="replace") for line in complete_lines)
    if rest:
        yield rest.decode(errors="replace")


class Requests:
    """Counts the signals that ask to end a run: an exception could leave a lock held, such as that of Popen.wait."""

    def __init__(self) -> None:
        self.count, self._last = 0, -math.inf

    def note(self, *_) -> None:
        """Count a signal; several at once are one request, as from `timeout -s INT` and of a closed terminal."""
        now = time.monotonic()
        if now - self._last > 1.0:
            self.count, self._last = self.count + 1, now


@contextlib.contextmanager
def noted_signals(*numbers: signal.Signals) -> Iterator[Requests]:
    """Count the requests to end the run in this block, by these signals."""
    requests = Requests()
    with worker.signal_handlers(dict.fromkeys(numbers, requests.note)):
        yield requests


def _end(process: subprocess.Popen, patience: float = SECONDS_TO_END) -> None:
    """Terminate a program; kill it after a while, and all that it has started: the workers are in its session."""
    family = []
    if process.poll() is None:
        family = _family(process)
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
    for each in family:
        with contextlib.suppress(psutil.Error):
            each.kill()
    for each in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if os.getsid(each.pid) == process.pid:
                each.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):  # Ctrl-C in `complete` may have left Popen's lock held.
        process.wait(SECONDS_TO_END)
