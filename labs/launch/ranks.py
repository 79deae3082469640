"""Calls on the ranks of resident workers: wait for all of them, end exchanges that cannot complete, show and explain.

A rank that raises an exception, or is interrupted, takes part in no more exchanges. Another rank may already wait for
it in one. There it runs no Python, so no exception reaches it: Horovod has to end the exchange.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable

from ipyparallel import AsyncResult, Client
from IPython.display import publish_display_data

from labs.launch import engine
from labs.run import worker
from labs.run.errors import LabError

SECONDS_AFTER_FAILURE = 2.0
"""How long ranks may go on when another one has failed: after that they probably wait for it."""
SECONDS_AFTER_END = 60.0
"""How long ranks may go on when another one has finished."""
SECONDS_TO_ANSWER = 30.0
POLL_SECONDS = 0.1

Calls = dict[int, AsyncResult]
"""The same call on several ranks."""


class WorkerError(LabError):
    """A worker raised an exception; the message names the rank, and a notebook shows the traceback above it."""

    def __init__(self, message: str, traceback: str = ""):
        super().__init__(message)
        self.traceback = traceback

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows instead of the traceback of this process."""
        return [*self.traceback.splitlines(), f"{type(self).__name__}: {self}"]


class Ranks:
    """The ranks of resident workers.

    Args:
        client: Connected to the engines, which have all started.
        check: Raises if the workers have ended.
        calls: Is filled with the last calls, whose output may say why a worker has ended.
    """

    def __init__(self, client: Client, check: Callable[[], None], calls: Calls):
        self.client, self.all, self._check, self._calls = client, sorted(client.ids), check, calls
        self.pids, threads = zip(*self.short(engine.introduce), strict=True)
        self.threads = threads[0]

    def execute(self, code: str, ranks: Iterable[int]) -> None:
        """Run code on some ranks and show what each has printed, drawn and returned."""
        calls = {rank: self.client[rank].execute(code, silent=False, block=False) for rank in ranks}
        try:
            self._finish(calls)
        finally:
            for rank, call in calls.items():
                _show(rank, call)

    def apply(self, function: Callable, *args) -> None:
        """Call a function on all ranks; print what rank 0 prints, as it arrives."""
        calls = {rank: self.client[rank].apply_async(function, *args) for rank in self.all}
        self._finish(calls, _forwarder(calls[0]))

    def short(self, function: Callable) -> list:
        """Return the results of a short function, by rank."""
        calls = {rank: self.client[rank].apply_async(function) for rank in self.all}
        deadline = time.monotonic() + SECONDS_TO_ANSWER
        while busy := _busy(calls):
            calls[busy[0]].wait(POLL_SECONDS)
            self._check()
            if time.monotonic() > deadline:
                raise NoAnswerError(f"no answer from {_names(busy)} in {SECONDS_TO_ANSWER:.0f} s")
        return [call.get() for call in calls.values()]

    def _finish(self, calls: Calls, forward: Callable[[], None] = lambda: None) -> None:
        """Wait for calls; raise a WorkerError if one fails."""
        self._calls.clear()
        self._calls.update(calls)
        stuck: set[int] = set()
        try:
            while waiting := self._wait(calls, forward):
                stuck.update(waiting)
                if any(map(_has_failed, calls.values())):
                    self._release(calls)
                else:
                    self._signal(engine.END_EXCHANGES, waiting)
        except KeyboardInterrupt:
            self._release(calls)
            self.short(engine.restart_horovod)
            raise
        for call in calls.values():
            call.wait_for_output(1)
        forward()
        if any(map(_has_failed, calls.values())):
            if stuck or any(map(_is_echo, calls.values())):
                self.short(engine.restart_horovod)
            raise _error(calls, stuck)

    def _wait(self, calls: Calls, forward: Callable[[], None]) -> list[int]:
        """Wait until all calls have ended, or the ranks that go on probably wait for the others; return those."""
        busy, since = list(calls), time.monotonic()
        while busy:
            calls[busy[0]].wait(POLL_SECONDS)
            forward()
            self._check()
            before, busy = busy, _busy(calls)
            since = since if busy == before else time.monotonic()
            limit = SECONDS_AFTER_FAILURE if any(map(_has_failed, calls.values())) else SECONDS_AFTER_END
            if len(busy) < len(calls) and time.monotonic() - since > limit:
                break
        return busy

    def _release(self, calls: Calls) -> None:
        """Interrupt the ranks that are still busy, in Python and in exchanges."""
        for number in (signal.SIGINT, engine.END_EXCHANGES) * 2:
            self._signal(number, _busy(calls))
            for call in calls.values():
                call.wait(1.0)
        if busy := _busy(calls):
            raise NoAnswerError(f"{_names(busy)} could not be interrupted")

    def _signal(self, number: signal.Signals, ranks: Iterable[int]) -> None:
        for rank in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pids[rank], number)


class NoAnswerError(Exception):
    """Ranks react to nothing any more."""


def _busy(calls: Calls) -> list[int]:
    return [rank for rank, call in calls.items() if not call.ready()]


def _has_failed(call: AsyncResult) -> bool:
    return call.ready() and not call.successful()


def _is_echo(call: AsyncResult) -> bool:
    return _has_failed(call) and worker.is_echo(call.exception())


def _error(calls: Calls, stuck: set[int]) -> WorkerError:
    """Return the error of the first rank that failed by itself, not because another one did.

    Args:
        calls: All have ended.
        stuck: The ranks whose exchanges had to be ended.
    """
    errors = {rank: call.exception() for rank, call in calls.items() if _has_failed(call)}
    causes = [rank for rank in errors if rank not in stuck and not _is_echo(calls[rank])]
    if not causes:
        return WorkerError(f"{_names(errors)} waited for an exchange in which not all ranks took part; "
                           "all ranks must call the same operations of Horovod, in the same order")
    rank, error = causes[0], errors[causes[0]]
    message = next(iter(str(error.evalue).strip().splitlines()), "")
    explained = error.ename == "LabError"
    if not message.startswith("rank "):
        message = f"rank {rank}: {message}" if explained else f"rank {rank}: {error.ename}: {message}"
    return WorkerError(message + (f"; {_names(stuck)} waited for it" if stuck else ""),
                       "" if explained else error.traceback)


def _names(ranks: Iterable[int]) -> str:
    """Return "rank 1" or "ranks 0, 1"."""
    names = [str(rank) for rank in sorted(ranks)]
    return f"rank{'s' * (len(names) > 1)} {', '.join(names)}"


def _forwarder(call: AsyncResult) -> Callable[[], None]:
    """Return a function that prints what a call has printed since the function was last called."""
    shown = 0

    def forward() -> None:
        nonlocal shown
        text = call.stdout
        print(text[shown:], end="", flush=True)
        shown = len(text)

    return forward


def _show(rank: int, call: AsyncResult) -> None:
    """Show what a rank has printed, drawn and returned."""
    for text, stream in ((call.stdout, sys.stdout), (call.stderr, sys.stderr)):
        for line in text.splitlines():
            print(f"rank {rank}: {line}", file=stream)
    for output in call.outputs:
        publish_display_data(output["data"], output["metadata"])
    if call.execute_result:
        print(f"rank {rank}: {call.execute_result['data']['text/plain']}")
