"""Stop requests: Ctrl-C, a time limit or preemption by a scheduler, passed on to all workers as one signal.

The launcher sends SIGNAL to its workers on all nodes. During training a worker only records the request; `fit` then
saves and stops after the same step on all workers. At any other time the signal interrupts the worker like Ctrl-C.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

SIGNAL = signal.SIGUSR1
"""mpirun and srun forward this signal; after a SIGTERM they would send SIGKILL."""


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
