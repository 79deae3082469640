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
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from ipyparallel import Client
from ipyparallel.client.magics import ParallelMagics
from IPython import get_ipython

from labs.launch import capacity, engine, failure, hosts, local, mpirun, supervisor
from labs.launch.ranks import Calls, NoAnswerError, Ranks
from labs.launch.tmpdir import private_tmpdir
from labs.run import fields, lifeline, run_lock
from labs.run.errors import ERROR_PREFIX, LabError
from labs.run.fields import Role
from labs.run.lab import Lab
from labs.run.options import Options
from labs.run.text import one_line, plural

CONTROLLER = ["-m", "ipyparallel.controller", "--ip=127.0.0.1", "--location=127.0.0.1", "--nodb", "--usethreads",
              "--log-level=40"]
SECONDS_TO_START = 180.0

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


class Workers:
    """Resident workers, from `start`; as a context manager they end with the block.

    Args:
        size: How many to start.

    Raises:
        LabError: They did not start.
    """

    def __init__(self, size: int):
        self.size, self._ended, self._folder = size, "", Path(os.devnull)
        self._log, self._evidence = io.StringIO(), failure.Evidence(Options.stall_seconds)
        self._calls: Calls = {}
        self._processes: list[tuple[subprocess.Popen, list[threading.Thread]]] = []
        self._opened = contextlib.ExitStack()
        try:
            with self._giving_up():
                self._ranks = self._start()
        except BaseException:
            self.stop()
            raise
        atexit.register(self.stop)
        if shell := get_ipython():
            shell.register_magics(Magics(shell, self, self._ranks.client.direct_view("all", block=True)))

    def _start(self) -> Ranks:
        """Start controller and engines, and connect to them."""
        env = mpirun.environment(bar=False) | self._private_folder()
        env = engine.STALL_LIMITS | env | {lifeline.SUPERVISOR: lifeline.supervisor_name()}
        self._open([sys.executable, *CONTROLLER], env)
        keys = Path(env["IPP_PROFILE_DIR"], "security")
        self._await((keys / "ipcontroller-engine.json").exists)  # It is written after the client's.
        client = Client(str(keys / "ipcontroller-client.json"), timeout=SECONDS_TO_START)
        self._opened.callback(client.close, linger=0)
        self._open([*mpirun.command(self.size, env), sys.executable, "-m", engine.__name__], env)
        self._await(lambda: len(client.ids) == self.size)
        return Ranks(client, self.check, self._calls)

    def _private_folder(self) -> dict[str, str]:
        """Make the folder of ipyparallel's files and keys; return the variables that name it."""
        folder = self._opened.enter_context(private_tmpdir(os.environ)).get("TMPDIR")
        if folder is None:
            raise LabError(f"cannot make a folder in {tempfile.gettempdir()}; free some space, or set TMPDIR")
        return {"IPYTHONDIR": f"{folder}/ipython", "IPP_PROFILE_DIR": f"{folder}/ipython/profile", "IPP_CLUSTER_ID": ""}

    def _open(self, command: list[str], env: dict[str, str]) -> None:
        """Start a program that ends with the workers, or with this process."""
        process = self._opened.enter_context(supervisor.started(command, env))
        self._processes.append((process, supervisor.pass_output_on(process, self._log, self._evidence)))

    def _await(self, is_ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS_TO_START
        while not is_ready():
            self.check()
            if time.monotonic() > deadline:
                raise NoAnswerError(f"not started in {SECONDS_TO_START:.0f} s")
            time.sleep(0.02)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"{plural(self.size, 'worker')}, {plural(self._ranks.threads, 'thread')} each"

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
        with self._giving_up():
            self._ranks.execute(code, range(self.size) if ranks is None else ranks)

    def pull(self, expression: str) -> list:
        """Return the value of an expression on every rank, by rank.

        Args:
            expression: Such as the name of a variable that a `%%px` cell has set.
        """
        self.check()
        return [self._ranks.client[rank].pull(expression, block=True) for rank in range(self.size)]

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
        run = local.prepare(lab, args, self.size, oversubscribe=True)
        self._refuse(run)
        self._folder = run.folder
        with run_lock.discarding_unused(run.folder), self._giving_up():
            self._ranks.apply(engine.train, run.lab.module, run.arguments)
        self._folder = Path(os.devnull)
        return records.read(run.folder)

    def _refuse(self, run: local.Run) -> None:
        """Raise if a run needs workers of its own: with other settings, or started in another way."""
        threads = fields.value(run.config, Role.THREADS) or self._ranks.threads
        reason = ("its workers need other environment variables" if run.lab.environment
                  else "it has its own launcher" if run.lab.launcher is not Lab.launcher
                  else f"it asks for {plural(threads, 'thread')} each" if threads != self._ranks.threads else "")
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

    @contextlib.contextmanager
    def _giving_up(self):
        """Stop the workers if they do not answer in this block."""
        try:
            yield
        except NoAnswerError as problem:
            self._ended = f"{problem}, so the workers were stopped"
            self.stop()
        self.check()


class Magics(ParallelMagics):
    """`%px` and `%%px`, which print each rank's output in the order of the ranks."""

    def __init__(self, shell, workers: Workers, view):
        self.workers = workers
        super().__init__(shell, view)

    def parallel_execute(self, cell, block=None, **_):
        """Run a cell on the ranks that the magic's options name."""
        targets = self.view.targets
        self.workers.px(cell, None if targets == "all" else [targets] if isinstance(targets, int) else targets)
