"""Workers that stay: ranks inside a notebook, which many cells use.

    workers = resident.start(2)      then a cell that begins with %%px runs on both
    workers.run(lab, config)         a run, as `labs.launch.local.run` makes it, but its workers have started already
    workers.stop()

mpirun starts the workers as for `labs run`. Each is an engine of ipyparallel (labs/launch/engine.py). The notebook
reaches them through ipyparallel's controller. Controller and engines listen on the loopback interface, and accept only
messages signed with a key. The key lies in a temporary folder that only this user can read.
"""

from __future__ import annotations

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
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import ipyparallel
from ipyparallel.client.magics import ParallelMagics
from IPython import get_ipython
from IPython.display import publish_display_data

from labs.launch import capacity, engine, failure, hosts, local, mpirun, supervisor
from labs.launch.tmpdir import private_tmpdir
from labs.run import fields, lifeline, run_lock, worker
from labs.run.errors import ERROR_PREFIX, LabError
from labs.run.fields import Role
from labs.run.lab import Lab
from labs.run.text import one_line, plural

CONTROLLER = ["-m", "ipyparallel.controller", "--ip=127.0.0.1", "--location=127.0.0.1", "--nodb", "--usethreads",
              "--log-level=40"]
SECONDS_TO_START = 180.0
SECONDS_TO_ANSWER = 30.0
SECONDS_AFTER_FAILURE = 2.0
"""How long ranks may go on when another one has failed: after that they probably wait for it."""
SECONDS_AFTER_END = 60.0
"""How long ranks may go on when another one has finished the cell."""
POLL_SECONDS = 0.1

Calls = dict[int, ipyparallel.AsyncResult]
"""The same call on several ranks."""


class WorkerError(LabError):
    """A worker raised an exception; the message names the rank, and a notebook shows the traceback above it."""

    def __init__(self, message: str, traceback: str = ""):
        super().__init__(message)
        self.traceback = traceback

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows instead of the traceback of this process."""
        return [*self.traceback.splitlines(), f"{type(self).__name__}: {self}"]


class Workers:
    """Resident workers, from `start`.

    Args:
        size: How many to start.

    Raises:
        LabError: They did not start.
    """

    def __init__(self, size: int):
        self.size, self.threads = size, 0
        self._ended, self._folder, self._calls = "", Path(os.devnull), Calls()
        self._evidence, self._log = failure.Evidence(SECONDS_AFTER_END), io.StringIO()
        self._processes: list[tuple[subprocess.Popen, list[threading.Thread]]] = []
        self._opened = contextlib.ExitStack()
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        atexit.register(self.stop)
        if shell := get_ipython():
            shell.register_magics(Magics(shell, self))

    def _start(self) -> None:
        """Start controller and engines, and connect to them."""
        env = mpirun.environment(bar=False) | _private_folder(self._opened)
        env = engine.STALL_LIMITS | env | {lifeline.SUPERVISOR: lifeline.supervisor_name()}
        self._open([sys.executable, *CONTROLLER], env)
        keys = Path(env["IPP_PROFILE_DIR"], "security")
        self._await((keys / "ipcontroller-engine.json").exists)  # It is written after the client's.
        self._client = ipyparallel.Client(str(keys / "ipcontroller-client.json"), timeout=SECONDS_TO_START)
        self._opened.callback(self._client.close, linger=0)
        self._open([*mpirun.command(self.size, env), sys.executable, "-m", engine.__name__], env)
        self._await(lambda: len(self._client.ids) == self.size)
        self._pids, threads = zip(*self._on_all(engine.introduce), strict=True)
        self.threads = threads[0]

    def _open(self, command: list[str], env: dict[str, str]) -> None:
        """Start a program that ends with the workers, or with this process."""
        process = self._opened.enter_context(supervisor.started(command, env))
        self._processes.append((process, supervisor.pass_output_on(process, self._log, self._evidence)))

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"{plural(self.size, 'worker')}, {plural(self.threads, 'thread')} each"

    def stop(self) -> None:
        """End the workers, and remove their files."""
        global _running
        _running = None if _running is self else _running
        self._ended = self._ended or "the workers have been stopped"
        atexit.unregister(self.stop)
        self._opened.close()

    def px(self, code: str, ranks: Iterable[int] | None = None) -> None:
        """Run code on all ranks or on some, and show what each has printed; `%%px` calls this.

        Raises:
            WorkerError: The code raised an exception.
            LabError: A worker has ended.
        """
        self.check()
        calls = {rank: self._client[rank].execute(code, silent=False, block=False)
                 for rank in (range(self.size) if ranks is None else ranks)}
        try:
            self._finish(calls)
        finally:
            for rank, call in calls.items():
                _show(rank, call)

    def pull(self, expression: str) -> list:
        """Return the value of an expression on every rank, by rank.

        Args:
            expression: Such as the name of a variable that a `%%px` cell has set.
        """
        self.check()
        return [self._client[rank].pull(expression, block=True) for rank in range(self.size)]

    def run(self, lab: str | ModuleType | Lab, args: Any = ()) -> dict:
        """Run a lab on the workers and return rank 0's record; rank 0's output is printed as it arrives.

        Args:
            lab: Its name, the beginning of its name, or its module.
            args: The lab's Config, or what follows the lab's name on the command line.

        Raises:
            LabError: The lab needs workers of its own, or the run failed.
        """
        from labs.results import records

        self.check()
        planned = local.prepare(lab, args, self.size, oversubscribe=True)
        self._refuse(planned)
        self._folder = planned.folder
        with run_lock.discarding_unused(planned.folder):
            calls = {rank: self._client[rank].apply_async(engine.train, planned.lab.module, planned.arguments)
                     for rank in range(self.size)}
            self._finish(calls, _forwarder(calls[0]))
        self._folder = Path(os.devnull)
        return records.read(planned.folder)

    def _refuse(self, run: local.Run) -> None:
        """Raise if a run needs workers of its own: with other settings, or started in another way."""
        threads = fields.value(run.config, Role.THREADS) or self.threads
        reason = ("its workers need other environment variables" if run.lab.environment
                  else "it has its own launcher" if run.lab.launcher is not Lab.launcher
                  else f"it asks for {plural(threads, 'thread')} each" if threads != self.threads else "")
        if reason:
            raise LabError(f"{run.lab.name} cannot run on these {self}: {reason}; use labs.launch.local.run")

    def check(self) -> None:
        """Raise a LabError if the workers have ended."""
        for process, readers in self._processes:
            if not self._ended and process.poll() is not None:
                for reader in readers:
                    reader.join(timeout=2)
                self._ended = self._cause_of_death(process.returncode)
                self.stop()
        if self._ended:
            raise LabError(f"{one_line(self._ended)}; resident.start({self.size}) starts new ones")

    def _cause_of_death(self, code: int) -> str:
        """Return which rank has ended, how, and what it said."""
        lines = self._log.getvalue().splitlines()
        lines += [line for call in self._calls.values() for line in call.stderr.splitlines()]
        for line in lines:
            if ERROR_PREFIX in line:
                self._evidence.add_error(line.split(ERROR_PREFIX, 1)[1])
        cause = self._evidence.cause(code, self._folder)
        said = failure.likely_cause(filter(failure.ERROR_LINE.search, lines))
        return cause if not said or said.endswith(cause) else f"{cause}; it said: {said}"

    def _finish(self, calls: Calls, forward: Callable[[], None] = lambda: None) -> None:
        """Wait until all ranks have finished a call, and raise the error of the one that failed.

        A rank that has failed or finished takes part in no more exchanges, but others may wait for it in one.
        """
        self._calls, stuck = calls, set[int]()
        busy, since = list(calls), time.monotonic()
        try:
            while busy:
                calls[busy[0]].wait(POLL_SECONDS)
                forward()
                self.check()
                before, busy = busy, _busy(calls)
                since = since if busy == before else time.monotonic()
                waited = time.monotonic() - since
                if any(map(_has_failed, calls.values())) and waited > SECONDS_AFTER_FAILURE:
                    stuck.update(busy)
                    self._release(calls)
                elif len(busy) < len(calls) and waited > SECONDS_AFTER_END:
                    stuck.update(busy)
                    self._signal(engine.END_EXCHANGES, busy)
                    since = time.monotonic()
        except KeyboardInterrupt:
            self._release(calls)
            self._on_all(engine.restart_horovod)
            raise
        for call in calls.values():
            call.wait_for_output(1)
        forward()
        if any(map(_has_failed, calls.values())):
            if stuck or any(map(_is_echo, calls.values())):
                self._on_all(engine.restart_horovod)
            raise _error(calls, stuck)

    def _release(self, calls: Calls) -> None:
        """End what the ranks still do, in Python and in exchanges; as the last resort, stop the workers."""
        for number in (signal.SIGINT, engine.END_EXCHANGES) * 2:
            self._signal(number, _busy(calls))
            for call in calls.values():
                call.wait(1.0)
        if busy := _busy(calls):
            self._give_up(f"{_ranks(busy)} could not be interrupted")

    def _signal(self, number: signal.Signals, ranks: Iterable[int]) -> None:
        for rank in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pids[rank], number)

    def _on_all(self, function: Callable) -> list:
        """Return the results of a short function, by rank."""
        calls = [self._client[rank].apply_async(function) for rank in range(self.size)]
        self._await(lambda: all(call.ready() for call in calls), SECONDS_TO_ANSWER)
        return [call.get() for call in calls]

    def _await(self, is_ready: Callable[[], bool], seconds: float = SECONDS_TO_START) -> None:
        deadline = time.monotonic() + seconds
        while not is_ready():
            self.check()
            if time.monotonic() > deadline:
                self._give_up(f"the workers did not answer for {seconds:.0f} s")
            time.sleep(0.02)

    def _give_up(self, reason: str) -> None:
        """Stop the workers and raise."""
        self._ended = f"{reason}, so the workers were stopped"
        self.stop()
        self.check()


class Magics(ParallelMagics):
    """`%px` and `%%px`, which print each rank's output in the order of the ranks."""

    def __init__(self, shell, workers: Workers):
        self.workers = workers
        super().__init__(shell, workers._client.direct_view("all", block=True))

    def parallel_execute(self, cell, block=None, **_):
        """Run a cell on the ranks that the magic's options name."""
        targets = self.view.targets
        self.workers.px(cell, None if targets == "all" else [targets] if isinstance(targets, int) else targets)


def _private_folder(opened: contextlib.ExitStack) -> dict[str, str]:
    """Make the folder of ipyparallel's files and keys; return the variables that name it."""
    folder = opened.enter_context(private_tmpdir(os.environ)).get("TMPDIR")
    if folder is None:
        raise LabError(f"cannot make a folder in {tempfile.gettempdir()}; free some space, or set TMPDIR")
    return {"IPYTHONDIR": f"{folder}/ipython", "IPP_PROFILE_DIR": f"{folder}/ipython/profile", "IPP_CLUSTER_ID": ""}


def _busy(calls: Calls) -> list[int]:
    return [rank for rank, call in calls.items() if not call.ready()]


def _is_echo(call: ipyparallel.AsyncResult) -> bool:
    return _has_failed(call) and worker.is_echo(call.exception())


def _has_failed(call: ipyparallel.AsyncResult) -> bool:
    return call.ready() and not call.successful()


def _ranks(ranks: Iterable[int]) -> str:
    names = [str(rank) for rank in sorted(ranks)]
    return f"rank{'s' * (len(names) > 1)} {' and '.join(filter(None, [', '.join(names[:-1]), names[-1]]))}"


def _error(calls: Calls, stuck: set[int]) -> WorkerError:
    """Return the error of the first rank that failed by itself, not because another one did.

    Args:
        calls: All have ended.
        stuck: The ranks whose exchanges had to be ended.
    """
    errors = {rank: call.exception() for rank, call in calls.items() if _has_failed(call)}
    causes = {rank: error for rank, error in errors.items() if rank not in stuck and not _is_echo(calls[rank])}
    if not causes:
        return WorkerError(f"{_ranks(errors)} waited for an exchange in which not all ranks took part; "
                           "all ranks must call the same operations of Horovod, in the same order")
    rank, error = min(causes.items())
    message = next(iter(str(error.evalue).strip().splitlines()), "")
    if not message.startswith("rank "):
        message = f"rank {rank}: {message}" if error.ename == "LabError" else f"rank {rank}: {error.ename}: {message}"
    waiting = f"; {_ranks(stuck)} waited for it" if stuck else ""
    return WorkerError(message + waiting, "" if error.ename == "LabError" else error.traceback)


def _forwarder(call: ipyparallel.AsyncResult) -> Callable[[], None]:
    """Return a function that prints what a call has printed since the function was last called."""
    shown = 0

    def forward() -> None:
        nonlocal shown
        text = call.stdout
        print(text[shown:], end="", flush=True)
        shown = len(text)

    return forward


def _show(rank: int, call: ipyparallel.AsyncResult) -> None:
    """Show what a rank has printed, drawn and returned."""
    for text, stream in ((call.stdout, sys.stdout), (call.stderr, sys.stderr)):
        for line in text.splitlines():
            print(f"rank {rank}: {line}", file=stream)
    for output in call.outputs:
        publish_display_data(output["data"], output["metadata"])
    if call.execute_result:
        print(f"rank {rank}: {call.execute_result['data']['text/plain']}")


_running: Workers | None = None
"""The workers of this process: a second set would share their cores."""


def start(workers: int = 2, oversubscribe: bool = False) -> Workers:
    """Start workers for this notebook, or return those that are running.

    Args:
        workers: How many.
        oversubscribe: Allow more workers than cores.

    Raises:
        LabError: There are too few cores, another number of workers is running, or the workers did not start.
    """
    global _running
    if _running is not None:
        with contextlib.suppress(LabError):
            _running.check()  # Workers that have ended are forgotten.
    if _running is not None and _running.size != workers:
        raise LabError(f"{_running} are running; end them first with resident.stop()")
    if _running is not None:
        print(f"{_running} are running already")
        return _running
    workers = capacity.choose_workers(workers, oversubscribe)
    if hosts.nodes() > 1:
        raise LabError("resident workers share one node, and this job has several; use labs.launch.local.run")
    print(f"starting {plural(workers, 'worker')} ...", flush=True)
    _running = Workers(workers)
    return _running


def stop() -> None:
    """End the workers of this notebook, if there are any."""
    if _running is not None:
        _running.stop()
