"""How a worker is stopped: on request, and with its launcher.

A request is Ctrl-C, a time limit or preemption by a scheduler, passed on to all workers as one signal. The
launcher sends SIGNAL to its workers on all nodes. During training a worker only records the request; `fit` then
saves and stops after the same step on all workers. At any other time the signal interrupts the worker like Ctrl-C.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping

SIGNAL = signal.SIGUSR1
"""mpirun and srun forward this signal; after a SIGTERM they would send SIGKILL."""

REQUESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, SIGNAL)
"""What asks `labs` to end: Ctrl-C, a scheduler, a closed terminal, a time limit."""


class Stopped(KeyboardInterrupt):
    """The run has saved its state and stopped on request."""


# Global, because a process has one handler per signal and runs one worker at a time.
_deferred = False
_requested = False


def _on_signal(*_) -> None:
    global _requested
    if not _deferred:
        raise KeyboardInterrupt
    _requested = True


@contextlib.contextmanager
def handle_signal() -> Iterator[None]:
    """Handle SIGNAL in this block: raise KeyboardInterrupt, except inside `defer_signal`."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python delivers signals to the main thread only.
        return
    before = signal.signal(SIGNAL, _on_signal)
    try:
        yield
    finally:
        signal.signal(SIGNAL, before)


@contextlib.contextmanager
def defer_signal() -> Iterator[None]:
    """Record SIGNAL in this block instead of interrupting it; `requested` returns what was recorded."""
    global _deferred, _requested
    _deferred, _requested = True, False
    try:
        yield
    finally:
        _deferred = False


def requested() -> bool:
    """Return whether SIGNAL arrived in the last `defer_signal` block."""
    return _requested


def ignore_requests() -> None:
    """Ignore further requests to end this process: it is ending."""
    for number in REQUESTS:
        signal.signal(number, signal.SIG_IGN)


SUPERVISOR = "LABS_SUPERVISOR"
"""The environment variable that tells workers the process of `labs run`, as "host:pid"; they end with it and send it
their heartbeats."""
PR_SET_PDEATHSIG = 1


def end_with_parent(number: signal.Signals = signal.SIGTERM) -> None:
    """Have the kernel send this process a signal when its parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def end_with_launcher(environ: Mapping[str, str] = os.environ) -> None:
    """Have the kernel kill this worker when its launcher ends, and exit at once if `labs run` has already ended.

    Open MPI's launcher may end without its workers when it loses its output. A process that was started from a shell
    may outlive the shell.
    """
    if "OMPI_COMM_WORLD_RANK" in environ or "HOROVOD_RANK" in environ:
        end_with_parent(signal.SIGKILL)
    host, _, pid = environ.get(SUPERVISOR, "").partition(":")
    if host == socket.gethostname() and not os.path.exists(f"/proc/{pid}"):
        os._exit(1)


def supervisor_name() -> str:
    """Return the value of SUPERVISOR for this process."""
    return f"{socket.gethostname()}:{os.getpid()}"
