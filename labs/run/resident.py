"""Workers that stay: ranks inside a notebook, on which a cell runs that begins with %%px.

mpirun starts the workers as for `labs run`. Each is an engine of ipyparallel (labs/training/engine.py), which the
notebook reaches through a controller on the loopback interface, by a key that only this user can read. The rest is what
ipyparallel lacks: it names the rank that fails, ends an exchange that not all ranks join, and suspends idle workers.
"""

import atexit
import contextlib
import io
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ipyparallel import AsyncResult, Client, DirectView
from IPython import get_ipython
from IPython.display import publish_display_data

from labs.run import environment, failure, mpirun, supervisor, worker
from labs.run.errors import Interrupted, LabError, plural

CONTROLLER = ["-m", "ipyparallel.controller", "--ip=127.0.0.1", "--location=127.0.0.1", "--nodb", "--usethreads",
              "--log-level=40", "--HeartMonitor.max_heartmonitor_misses=1000000000"]
"""Stopped engines miss its heartbeats; if an engine dies, mpirun ends."""
STALL_LIMITS = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "15", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "45"}
"""After how long Horovod ends an exchange that not all ranks have joined."""
SECONDS_TO_START, SECONDS_AFTER_FAILURE = 180.0, 2.0
"""The longest times: for the start, and for ranks when another one has failed, since they probably wait for it."""

_running: "Workers | None" = None


def start(workers: int = 2, threads: int = 0) -> "Workers":
    """Start workers, each with these threads (0: its share of the cores); stop those of an earlier start."""
    global _running
    if _running:
        _running.stop()
    environment.refuse_harmful()
    mpirun.choose_workers(workers, oversubscribe=False)
    print(f"starting {plural(workers, 'worker')} ...", flush=True)
    _running = Workers(workers, threads)
    return _running


def _run_cell(line: str, cell: str = "") -> None:
    if line.strip():
        raise WorkerError("%%px has no options; choose a rank with `if hvd.rank() == 1:`")
    if not _running:
        raise WorkerError("no workers yet; run the cell with resident.start(2) and, after a kernel restart, all %%px "
                          "cells after it")
    _running.px(cell)


class WorkerError(LabError):
    """A worker raised an exception; the message names the rank, and a notebook shows that worker's traceback."""

    traceback = ""

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows instead of the traceback of this process."""
        return [*self.traceback.splitlines(), f"{type(self).__name__}: {self}"]


class Workers:
    """Resident workers, from `start`. A call raises WorkerError if it failed, LabError if a worker has ended."""

    def __init__(self, size: int, threads: int):
        self.size, self._ended = size, ""
        self._pids: list[int] = []
        self._diagnosis = failure.Diagnosis()
        self._programs: list[tuple[subprocess.Popen, list[threading.Thread]]] = []
        self._at_end = contextlib.ExitStack()
        atexit.register(self.stop)
        try:
            self._start(threads)
        except BaseException:
            self.stop()
            raise

    def _start(self, threads: int) -> None:
        keeper = tempfile.TemporaryDirectory(prefix="labs-keys-", ignore_cleanup_errors=True)
        folder = self._at_end.enter_context(keeper)
        env = mpirun.environment(bar=False) | STALL_LIMITS
        env |= {"IPYTHONDIR": f"{folder}/ipython", "IPP_PROFILE_DIR": f"{folder}/ipython/profile", "IPP_CLUSTER_ID": ""}
        keys = Path(env["IPP_PROFILE_DIR"], "security")
        # This file is written after the client's.
        self._open([*mpirun.PYTHON, *CONTROLLER], env, (keys / "ipcontroller-engine.json").exists)
        self._client = Client(str(keys / "ipcontroller-client.json"), timeout=SECONDS_TO_START)
        self._at_end.callback(self._client.close, linger=0)
        self._open([*mpirun.command(self.size, env), *mpirun.PYTHON, "-m", "labs.training.engine", str(threads)], env,
                   lambda: len(self._client.ids) == self.size)
        self._pids = self.pull("__import__('os').getpid()")

    def _open(self, command: list[str], env: dict[str, str], is_ready: Callable[[], bool]) -> None:
        """Start a program that ends with the workers, or with this process, and wait until it is ready."""
        process = self._at_end.enter_context(supervisor.started(command, env))
        self._programs.append((process, supervisor.pass_output_on(process, io.StringIO(), self._diagnosis)))
        deadline = time.monotonic() + SECONDS_TO_START
        while not is_ready():
            self._check()
            if time.monotonic() > deadline:
                raise LabError(f"the workers have not started in {SECONDS_TO_START:.0f} s")
            time.sleep(0.02)

    def stop(self, cause: str = "the workers have been stopped") -> None:
        """End the workers, and remove their files; later calls raise an error that says the cause."""
        self._ended = self._ended or f"{cause}; resident.start({self.size}) starts new workers"
        atexit.unregister(self.stop)
        self._signal(signal.SIGCONT)
        self._at_end.close()

    def px(self, code: str) -> None:
        """Run code on all ranks, and show what each has printed, plotted and returned; a `%%px` cell calls this."""
        self._call_all(lambda rank: rank.execute(code, silent=False, block=False))

    def pull(self, expression: str) -> list:
        """Return the value of an expression on every rank, such as the name of a variable of a `%%px` cell."""
        return self._call_all(lambda rank: rank.pull(expression, block=False))

    def _call_all(self, call_on: Callable[[DirectView], AsyncResult]) -> list:
        """Start a call on each rank, wait for all, show what each has printed, and return the results by rank."""
        self._check()
        self._signal(signal.SIGCONT)
        calls = [call_on(self._client[rank]) for rank in range(self.size)]
        try:
            self._wait(calls)
        finally:
            if not self._ended:
                self._signal(signal.SIGSTOP)  # Horovod looks for tensors a thousand times a second, also when idle.
            for rank, call in enumerate(calls):
                _show(rank, call)
        errors = {rank: call.exception() for rank, call in enumerate(calls) if _has_failed(call)}
        if not errors:
            return [call.get() for call in calls]
        problem = _explain(errors)
        waiting = [str(rank) for rank, call in enumerate(calls)
                   if not call.ready() or (rank in errors and worker.is_secondary_failure(errors[rank]))]
        if waiting:  # Horovod cannot forget an exchange that some ranks have begun.
            self.stop(f"{problem}; rank {', '.join(waiting)} waited, so the workers were stopped")
            problem.args = (self._ended,)
        raise problem

    def _wait(self, calls: list[AsyncResult]) -> None:
        """Wait until all calls have ended, or will not end because another one has failed."""
        patience = SECONDS_AFTER_FAILURE
        with supervisor.noted_signals(signal.SIGINT) as requests:
            while patience > 0 and (waiting := [call for call in calls if not call.ready()]):
                waiting[0].wait(0.1)
                patience -= 0.1 * any(map(_has_failed, calls))
                self._check()
                if requests:  # A rank that waits in an exchange cannot be interrupted, only ended.
                    self.stop("the cell was interrupted, so the workers were stopped")
                    raise Interrupted(self._ended)
        for call in filter(AsyncResult.ready, calls):
            call.wait_for_output(1)

    def _signal(self, number: signal.Signals) -> None:
        """Suspend all workers (SIGSTOP) or resume them (SIGCONT)."""
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _check(self) -> None:
        for process, readers in self._programs:
            if not self._ended and process.poll() is not None:
                for reader in readers:
                    reader.join(timeout=2)
                self.stop(self._diagnosis.cause(process.returncode, None))
        if self._ended:
            raise LabError(self._ended)


def _has_failed(call: AsyncResult) -> bool:
    return call.ready() and not call.successful()


def _explain(errors: dict[int, Any]) -> WorkerError:
    """Return the error of the first rank that failed by itself, not because another one did."""
    rank = next((rank for rank, error in errors.items() if not worker.is_secondary_failure(error)), None)
    if rank is None:
        return WorkerError("not all ranks have joined an exchange: all must call the same operations of Horovod, in "
                           "the same order")
    problem = WorkerError(f"rank {rank}: {errors[rank].ename}: {errors[rank].evalue}".strip().partition("\n")[0])
    problem.traceback = errors[rank].traceback
    return problem


def _show(rank: int, call: AsyncResult) -> None:
    for text, stream in ((call.stdout, sys.stdout), (call.stderr, sys.stderr)):
        for line in text.splitlines():
            print(f"rank {rank}: {line}", file=stream)
    for output in call.outputs:
        publish_display_data(output["data"], output["metadata"])
    if call.execute_result:
        print(f"rank {rank}: {call.execute_result['data']['text/plain']}")


if shell := get_ipython():  # ipyparallel registers its own magics unless there is a line magic of this name.
    shell.register_magic_function(_run_cell, "line_cell", "px")
