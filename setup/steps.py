"""Numbered steps, commands with their output in a log, and one line for a failure."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import signal
import subprocess
import time
from pathlib import Path

# Patterns in a command's log, and the explanation to print.
CAUSES = (
    (
        "No space left on device|Disk quota exceeded",
        "the disk is full; free some space, or point TMPDIR, UV_CACHE_DIR and XDG_CACHE_HOME at a larger one",
    ),
    (
        "Killed signal terminated program",
        "a compiler was killed: the machine ran out of memory; end other programs and try again",
    ),
    (
        "dns error|error sending request|Name or service not known|Temporary failure in name resolution"
        "|Network is unreachable|Failed to establish a new connection|Connection refused|operation timed out",
        "the package index cannot be reached; connect this machine, or name a mirror in PIP_INDEX_URL",
    ),
)
ERROR = r"\berror: |\bCMake Error\b|\w+Error: |^ERROR"


class SetupError(Exception):
    """An obstacle, reported in one line with cause and cure."""


@contextlib.contextmanager
def locked(path: Path, waiting: str):
    """Hold a lock while the block runs; if another run holds it, print `waiting` first. Yield whether it waited."""
    with path.open("w") as lock:
        # Child processes inherit the lock: if only this program is killed, the next run waits for them.
        os.set_inheritable(lock.fileno(), True)
        waited = not _try_lock(lock)
        if waited:
            print(waiting, end="", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield waited


def _try_lock(lock) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # A file system without locks (home folders of some clusters): the user must avoid concurrent runs.
        return error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN)
    return True


class Steps:
    """Prints each step and its duration; keeps the output of its commands in a log."""

    def __init__(self, total: int, log: Path) -> None:
        self.total, self.log, self.done = total, log, 0
        log.write_bytes(b"")

    @contextlib.contextmanager
    def step(self, title: str):
        """Print one numbered line: first the title, at the end the seconds."""
        self.done += 1
        started = time.monotonic()
        print(f"[{self.done}/{self.total}] {title} ...", end="", flush=True)
        try:
            yield
        except BaseException:
            print(flush=True)
            raise
        print(f" {time.monotonic() - started:.1f} s", flush=True)

    def run(self, command: list, env: dict[str, str], timeout: float | None = None) -> str:
        """Run a command and return its output.

        Raises:
            SetupError: The command failed, or ran longer than `timeout` seconds.
        """
        command = [str(word) for word in command]
        program = Path(command[0]).name
        with self.log.open("ab+") as log:
            log.write(f"$ {' '.join(command)}\n".encode())
            log.flush()
            start = log.tell()
            process = subprocess.Popen(command, env=env, close_fds=False, stdin=subprocess.DEVNULL, stdout=log,
                                       stderr=log)
            code = _wait(process, timeout)
            log.seek(start)
            output = log.read().decode(errors="replace")
        if code is None:
            raise SetupError(f"{program} did not end within {timeout:.0f} s and was stopped; see {self.log}")
        if code:
            raise SetupError(self._explain(program, code, output))
        return output

    def _explain(self, program: str, code: int, output: str) -> str:
        if code == -signal.SIGKILL:
            return f"{program} was killed, most likely for lack of memory; end other programs and try again"
        for pattern, explanation in CAUSES:
            if re.search(pattern, output):
                return f"{explanation} (log: {self.log})"
        lines = [line.strip()[:200] for line in output.splitlines() if line.strip()]
        # The first errors name the cause, later ones are consequences; CMake prints its reason one line below.
        errors = [at for at, line in enumerate(lines) if re.search(ERROR, line)][:3]
        telling = [line for at in errors for line in lines[at : at + 2]] or lines[-6:]
        print("".join(f"\n    {line}" for line in telling), end="")
        return f"{program} exited with status {code}; its first errors are above, its full output is in {self.log}"


def _wait(process: subprocess.Popen, timeout: float | None) -> int | None:
    """Return the exit status, or None after the time limit; a command never outlives its caller."""
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()
