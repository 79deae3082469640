"""A worker's program: `python -m labs.LAB` runs it in each process that the launcher starts; and how it is stopped.

For Ctrl-C, a time limit or preemption the launcher sends SIGNAL to its workers on all nodes. During training a worker
only records it; `fit` then saves and stops after the same step on all workers. At other times it acts like Ctrl-C.
"""

import contextlib
import ctypes
import importlib
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from labs.run import environment, heartbeat
from labs.run.catalogue import load_lab
from labs.run.command_line import parse
from labs.run.errors import ERROR_PREFIX, LabError, explain_os_error, first_line, is_out_of_memory, one_line

SIGNAL = signal.SIGUSR1  # mpirun and srun forward it; after a SIGTERM they would send SIGKILL.
REQUESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, SIGNAL)  # Ctrl-C, a scheduler, a closed terminal, a limit.


class Stopped(KeyboardInterrupt):
    """The run has saved its state and stopped on request."""


# Global, because a process has one handler per signal and runs one worker at a time.
_deferred = _requested = False


def main() -> None:
    """Run the lab whose module was started as the program, as one worker of its run."""
    end_with_launcher()
    environment.hide_warnings()
    environment.TensorFlowImport.hidden = environment.UNUSED
    # `python -m` has loaded the module as __main__, where its name is lost.
    lab = load_lab(importlib.import_module(sys.modules["__main__"].__spec__.name))  # type: ignore[union-attr]
    try:
        config, options = parse(lab, sys.argv[1:])
        os.environ.update(lab.environment)  # Before TensorFlow loads, which reads them.
        os.environ.pop("MPLBACKEND", None)  # An invalid one would fail when the curves are plotted, at the end.
        lab.run(config, options)
    except BaseException as problem:
        running = heartbeat.current()
        if isinstance(problem, SystemExit) and running is None:
            raise  # --help.
        leave(explain_os_error(problem), f"{running.heartbeat}: " if running else "")


def leave(problem: BaseException, where: str, secondary: str = "stopped, since another worker has ended") -> None:
    """End this worker at once; its last line says which worker stopped, where and why.

    An ordinary exit would wait in Horovod's shutdown for workers that are waiting for this one.
    """
    sys.stdout.flush()
    is_secondary = is_secondary_failure(problem)
    if is_secondary or heartbeat.rank() != 0:
        time.sleep(1.0)  # Rank 0 reports what all find at once, and the cause comes before its consequences.
    if not (is_secondary or is_out_of_memory(problem)
            or isinstance(problem, LabError | KeyboardInterrupt | SystemExit)):
        traceback.print_exception(problem)
    cause = secondary if is_secondary else _cause(problem)
    print(f"{ERROR_PREFIX}{one_line(where + cause)}", file=sys.stderr, flush=True)
    own = problem.code if isinstance(problem, SystemExit) and isinstance(problem.code, int) else 0
    os._exit(130 if isinstance(problem, KeyboardInterrupt) else own & 255 or 1)


def is_secondary_failure(problem: BaseException) -> bool:
    """Return whether a worker's error only says that another worker has ended an exchange."""
    return any(text in str(problem) for text in ("Horovod has been shut down", "HorovodInternalError"))


def _cause(problem: BaseException) -> str:
    """Return an exception as one line."""
    if is_out_of_memory(problem):
        return "out of memory; lower --batch-size, or ask for more (sbatch --mem); lab 6 shows what fits"
    if isinstance(problem, SystemExit):
        return f"exited before the run ended, with sys.exit({problem.code!r})"
    if isinstance(problem, KeyboardInterrupt):
        return str(problem) or "interrupted"
    return f"{type(problem).__name__}: " * (not isinstance(problem, LabError)) + first_line(problem)


@contextlib.contextmanager
def signal_handlers(handlers: Mapping[signal.Signals, Callable[..., Any]]) -> Iterator[None]:
    """Handle signals in this block; Python delivers them to the main thread only.

    A signal that is ignored stays so: `nohup` ignores the hangup, and a shell Ctrl-C for its background programs.
    """
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()
              if is_main and signal.getsignal(number) != signal.SIG_IGN}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _on_signal(*_) -> None:
    global _requested
    if not _deferred:
        raise KeyboardInterrupt
    _requested = True


def handle_signal() -> contextlib.AbstractContextManager[None]:
    """Handle SIGNAL in a block: raise KeyboardInterrupt, except inside `defer_signal`."""
    return signal_handlers({SIGNAL: _on_signal})


@contextlib.contextmanager
def defer_signal() -> Iterator[None]:
    """Record SIGNAL in this block instead of interrupting it; `is_stop_requested` returns what was recorded."""
    global _deferred, _requested
    _deferred, _requested = True, False
    try:
        yield
    finally:
        _deferred = False


def is_stop_requested() -> bool:
    """Return whether SIGNAL arrived in the last `defer_signal` block."""
    return _requested


def end_with_parent(number: signal.Signals = signal.SIGTERM) -> None:
    """Have the kernel send this process a signal when its parent ends."""
    ctypes.CDLL(None).prctl(1, number)  # PR_SET_PDEATHSIG


def end_with_launcher() -> None:
    """Have the kernel kill this worker when its launcher ends, and exit at once if `labs run` has already ended."""
    if "OMPI_COMM_WORLD_RANK" in os.environ or "HOROVOD_RANK" in os.environ:
        end_with_parent(signal.SIGKILL)
    host, _, pid = os.environ.get(heartbeat.SUPERVISOR, "").partition(":")
    if host == socket.gethostname() and not os.path.exists(f"/proc/{pid}"):
        os._exit(1)
