"""Parent-death signals: a process ends when its parent ends, even if the parent is killed."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
from collections.abc import Mapping

SUPERVISOR = "LABS_SUPERVISOR"
"""The variable with which workers get the process of `labs run`, as "host:pid"; they end with it and send it their
heartbeats."""
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
