"""Supervision of a launcher: starts it, passes its output on, and ends it with all of its workers."""

import contextlib
import dataclasses
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from io import BufferedReader
from pathlib import Path
from threading import Thread
from typing import IO, cast

import psutil

from labs.run import failure, terminal, worker
from labs.run.errors import ERROR_PREFIX, Interrupted

SECONDS_TO_SAVE, SECONDS_TO_END = 20.0, 5.0
"""The longest times: to save after Ctrl-C, and to end when asked to."""
ERROR_LINE = re.compile(r"\b\w*Error: |\berror: |\bsignal \d")


@contextlib.contextmanager
def started(command: Sequence[str], env: Mapping[str, str] | None = None,
            folder: Path | None = None) -> Iterator[subprocess.Popen]:
    """Run a program during the block; if the block or this process ends, in any way, its processes end too.

    Ctrl-Z stops the program with this process, and `fg` continues both: the terminal's signals do not reach another
    session. mpirun passes them on to the workers of all nodes.
    """
    temporary = Path((os.environ if env is None else env).get("TMPDIR", "/tmp"))

    def begin() -> None:
        worker.end_with_parent()
        # A launcher of Open MPI that was killed leaves this folder, and one that gets its process number cannot start.
        shutil.rmtree(temporary / f"ompi.{os.getpid()}", ignore_errors=True)

    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                               env=env, cwd=folder, start_new_session=True, preexec_fn=begin)

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
    """How a program ended, and its output; the code is None if it did not end in time."""

    code: int | None
    out: str
    err: str

    @property
    def cause(self) -> str:
        """Why the program failed, as the end of a sentence that begins with its name."""
        if self.code is None:
            return "did not end in time"
        if self.code < 0:
            return f"was killed by {signal.Signals(-self.code).name}"
        lines = [line.strip() for line in self.err.splitlines() if line.strip(" -\0")]
        likely = [line for line in lines if ERROR_LINE.search(line)] or lines
        return likely[-1] if likely else f"exited with code {self.code} and printed nothing"


def complete(command: Sequence[object], seconds: float, env: Mapping[str, str] | None = None,
             folder: Path | None = None) -> Outcome:
    """Run a program in a folder to its end or to the time limit; all processes that it started end too."""
    with started([str(word) for word in command], env, folder) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            return Outcome(None, "", "")
        return Outcome(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))


def supervise(command: Sequence[str], env: Mapping[str, str], log: IO[str] | None, diagnosis: failure.Diagnosis,
              is_mpirun: bool, saves: bool = True) -> int:
    """Run the launcher to its end and return its exit code; if this process ends, in any way, the workers end too.

    mpirun passes signals on, and ends with the first worker that fails. A lab's workers save their state after Ctrl-C.
    """
    readers, deadline = [], math.inf
    try:
        with noted_signals(*worker.REQUESTS) as requests, started(command, env) as process:
            readers = pass_output_on(process, log, diagnosis)
            while process.poll() is None and len(requests) < 2 and diagnosis.clock.now() < deadline:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.3)
                if requests and deadline == math.inf:
                    deadline = diagnosis.clock.now()
                    if is_mpirun and saves:
                        deadline += SECONDS_TO_SAVE
                        process.send_signal(worker.SIGNAL)  # mpirun passes it on to the workers on all nodes.
                        with contextlib.suppress(OSError):  # The terminal has been closed.
                            terminal.note("saving; Ctrl-C again ends the run at once")
                if is_mpirun and diagnosis.must_end():
                    _end(process, failure.SECONDS_AFTER_ERROR)
    finally:
        for reader in readers:
            reader.join(timeout=2)
    if requests:
        raise Interrupted
    return process.returncode


def pass_output_on(process: subprocess.Popen, log: IO[str] | None, diagnosis: failure.Diagnosis) -> list[Thread]:
    """Start threads that forward a program's output, and return them; they end when the program has ended."""
    readers = [Thread(target=_pass_on, args=(*stream, diagnosis, stream[0] is process.stderr), daemon=True)
               for stream in ((process.stdout, log or sys.stdout), (process.stderr, log or sys.stderr))]
    for reader in readers:
        reader.start()
    return readers


def _pass_on(source: BufferedReader, target: IO[str], diagnosis: failure.Diagnosis, errors: bool) -> None:
    """Forward a stream, but leave its error lines and the launcher's boxed messages to the diagnosis.

    A closed terminal takes no more output, but the stream must still be read: workers that save would block.
    """
    in_box = False
    for text in _chunks(source):
        text = re.sub(r"^\[\d+\]<std(?:out|err)>:", "", text)  # horovodrun begins each line with its worker.
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


@contextlib.contextmanager
def noted_signals(*numbers: signal.Signals) -> Iterator[list[float]]:
    """Note the times of requests to end the run: an exception could leave a lock held, such as that of Popen.wait.

    Several signals in a second are one request, as from `timeout -s INT` and of a closed terminal.
    """
    requests: list[float] = []

    def note(*_) -> None:
        if not requests or time.monotonic() - requests[-1] > 1.0:
            requests.append(time.monotonic())

    with worker.signal_handlers(dict.fromkeys(numbers, note)):
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
