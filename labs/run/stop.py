"""Asked to stop: by Ctrl-C, a time limit, or a scheduler that wants the nodes for another.

The launcher hands SIGNAL to its workers on all nodes. A worker that trains notes it, and `fit` saves and stops after
the same step on all of them; at any other time it ends the worker as Ctrl-C does.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

SIGNAL = signal.SIGUSR1
"""mpirun and srun pass it on; SIGTERM they follow with SIGKILL."""


class Stopped(KeyboardInterrupt):
    """The run was asked to stop, and has saved where it is."""


# A process has one set of signal handlers, and runs one worker of one run at a time.
_trains = False
_asked = False


def _hear(*_) -> None:
    global _asked
    if not _trains:
        raise KeyboardInterrupt
    _asked = True


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """Hear SIGNAL in this block: it is a KeyboardInterrupt, but see `noted`."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python gives signals to the main thread alone.
        return
    before = signal.signal(SIGNAL, _hear)
    try:
        yield
    finally:
        signal.signal(SIGNAL, before)


@contextlib.contextmanager
def noted() -> Iterator[None]:
    """In this block SIGNAL interrupts nothing: `asked` tells of it."""
    global _trains, _asked
    _trains, _asked = True, False
    try:
        yield
    finally:
        _trains = False


def asked() -> bool:
    """Whether SIGNAL came while it was noted."""
    return _asked
