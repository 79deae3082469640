"""Heartbeats: each worker records its epoch and step, so that the others can detect a stalled one.

Horovod's own stall check runs on rank 0 alone, and is blind when rank 0 itself is frozen. Here every worker has a small
file in the run's folder, updated at each step, which survives even a SIGKILL. A thread in every worker reads the files
of the others. Workers of `labs run` and `labs launch` also send their heartbeat over their error stream, every second:
the files of a node that has lost its network no longer reach the others, and a student's script has none.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from labs.run import status_file, stop
from labs.run.errors import ERROR_PREFIX
from labs.run.status_file import StatusFile

FOLDER = "heartbeats"
"""Name of the heartbeats' folder in a run's folder."""
BEAT_LINE = re.compile(r"\x1elabs (\{[^\x1e]*\})\x1e\n?")


@dataclasses.dataclass(frozen=True)
class Beat:
    """One heartbeat: where a worker is in the training, and when it last took a step."""

    rank: int
    host: str
    pid: int
    epoch: int
    step: int
    moved: float
    """When the worker took its last step, in seconds since 1970; 0 before its run has begun."""
    alive: float
    """When the worker's heartbeat thread last ran, in seconds since 1970; in a stopped process it does not run. 0: the
    worker has finished."""
    epochs: int = 0
    """Epochs of the whole run; like the figures below, 0 if it is not known."""
    steps: int = 0
    """Steps per epoch."""
    images: int = 0
    """Images per step, of all workers."""
    step_seconds: float = 0.0
    """Seconds per step, lately."""
    exchange_seconds: float = 0.0
    """The part of `step_seconds` from this worker's last gradient to the last mean: it waits for slower workers, and
    for the transfer."""
    between_seconds: float = 0.0
    """Seconds from the last step of an epoch to the first of the next: validation and checkpoint."""
    line: str = ""
    """Where a student's script is, as "train.py, line 31"."""

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.host} ({self.position()})"

    def position(self) -> str:
        """Return the epoch and the step, or the line of a script, as text."""
        return self.line or (f"epoch {self.epoch}, step {self.step}" if self.epoch else "before the first step")


def read_beats(folder: Path) -> list[Beat]:
    """Return the last heartbeat of every worker that has written one, by rank.

    Args:
        folder: The heartbeats' folder of a run; it may be missing.
    """
    return list(status_file.read_all(folder, "rank-*", Beat))


def parse_beats(text: str) -> Iterator[Beat]:
    """Yield the heartbeats in a line of a worker's error stream."""
    for match in BEAT_LINE.finditer(text):
        try:
            yield Beat(**json.loads(match[1]))
        except (TypeError, ValueError):
            continue  # Truncated on its way; the next one comes in a second.


def slowest_worker(beats: list[Beat], alive_before: Mapping[int, float]) -> Beat:
    """Return the heartbeat of the worker for which the others wait.

    It is a worker whose heartbeat thread has stopped, or if all threads run, the worker that is furthest behind.

    Args:
        beats: The heartbeats of all workers; at least one.
        alive_before: When each rank's thread had last run, according to an earlier look.
    """
    dead = [beat for beat in beats if alive_before.get(beat.rank) == beat.alive]
    return min(dead or beats, key=lambda beat: (beat.epoch, beat.step, beat.moved))


class AwakeClock:
    """Counts the seconds in which this process was running; changes of the system time have no effect.

    Args:
        longest: The clock must be read at least this often, in seconds. If a process does not run for longer, it was
            stopped, and the rest of that time does not count.
    """

    def __init__(self, longest: float):
        self._longest, self._lock = longest, threading.Lock()
        self._seconds, self._read = 0.0, time.monotonic()

    def now(self) -> float:
        """Return the seconds since this clock was made."""
        with self._lock:
            now = time.monotonic()
            self._seconds += min(now - self._read, self._longest)
            self._read = now
            return self._seconds


class Pace:
    """Seconds per step of this worker over the last calls of its train function, and how much of them it waited."""

    def __init__(self) -> None:
        self._calls: collections.deque[tuple[float, int, float]] = collections.deque(maxlen=32)
        self._last = 0.0, 0.0

    def add(self, before: Beat, epoch: int, step: int, waited: float) -> dict[str, float]:
        """Return what changes in the heartbeat after a call that has ended at this step."""
        if (epoch, step) == (before.epoch, before.step):  # An evaluation.
            return {}
        (then, waited_then), self._last = self._last, (time.perf_counter(), waited)
        took = self._last[0] - then
        if epoch != before.epoch or step < before.step:  # What lies between two epochs is no step.
            return {"between_seconds": took} if before.epoch else {}
        self._calls.append((took, step - before.step, waited - waited_then))
        seconds, steps, waits = (sum(column) for column in zip(*self._calls, strict=True))
        return {"step_seconds": seconds / steps, "exchange_seconds": waits / steps}


class Heartbeat:
    """Records this worker's progress, and ends the run when the worker has made no progress for too long.

    Args:
        folder: The heartbeats' folder of the run; on storage that all nodes share.
        rank: This worker's rank.
        stall_seconds: How long a worker may take between two steps.
        host: Name of this node; the machine's host name if left out.
    """

    def __init__(self, folder: Path, rank: int, stall_seconds: float, host: str | None = None):
        self.folder, self.rank, self.stall_seconds = folder, rank, stall_seconds
        self._file, self._pace = StatusFile(folder / f"rank-{rank:05d}"), Pace()
        self._lock = threading.Lock()
        self._armed = False
        self._period = min(1.0, stall_seconds / 10)
        self._clock = AwakeClock(2 * self._period)  # If all workers were stopped, none of them is at fault.
        self._moved = self._clock.now()
        self.stopped_seconds = 0.0
        """For how long Ctrl-Z or Slurm has stopped this process during training."""
        self._step_ended, self._step_seconds, self._was_stopped = time.perf_counter(), 0.0, False
        self._alive_before: dict[int, float] = {}
        self.beat = Beat(rank, host or socket.gethostname(), os.getpid(), 0, 0, time.time(), time.time())
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="labs-heartbeat", daemon=True)
        self._write()
        self._thread.start()

    def plan(self, epochs: int, steps: int, images: int) -> None:
        """Record what lies ahead: epochs, steps per epoch, images per step of all workers."""
        self._write(epochs=epochs, steps=steps, images=images)

    def step(self, epoch: int, step: int, waited: float = 0.0) -> None:
        """Record that this worker has reached a step; the first one starts the stall check.

        Args:
            waited: The seconds of all steps so far in which this worker waited in the exchange of gradients.
        """
        self._armed, self._moved = True, self._clock.now()
        pace = self._pace.add(self.beat, epoch, step, waited)
        self._write(epoch=epoch, step=step, moved=time.time(), **pace)
        self._time_step()

    def begin_steps(self) -> None:
        """Start timing the next step; earlier time, and any stop in it, belongs to no step."""
        self._step_ended, self._was_stopped = time.perf_counter(), False

    def _time_step(self) -> None:
        """Time the step that has ended; after a stop in it, count its time beyond the previous step's as stopped."""
        ended, self._step_ended = self._step_ended, time.perf_counter()
        took = self._step_ended - ended
        if not self._was_stopped:
            self._step_seconds = took
        elif self._step_seconds:  # How long the very first step takes is not known.
            self.stopped_seconds += max(0.0, took - self._step_seconds)
        self._was_stopped = False

    @contextlib.contextmanager
    def note_stops(self) -> Iterator[None]:
        """Count `stopped_seconds` in this block; only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def continued(*_) -> None:
            self._was_stopped = True

        before = signal.signal(signal.SIGCONT, continued)
        try:
            yield
        finally:
            signal.signal(signal.SIGCONT, before)

    def still_moving(self) -> None:
        """Record that this worker is alive at the step it has reached, for example while it evaluates."""
        self.step(self.beat.epoch, self.beat.step)

    def pause(self) -> None:
        """Suspend the stall check until this worker's next step."""
        self._armed = False

    def close(self) -> None:
        """Stop the heartbeat, and report that this worker has finished."""
        self._ended.set()
        self._thread.join()
        with contextlib.suppress(OSError):  # Rank 0 deletes the files of a finished run, and NFS refuses to write.
            self._write(alive=0)
        if _sender:
            _sender.send()
        with self._lock:
            self._file.close()

    def _write(self, **changes) -> None:
        with self._lock:
            self.beat = dataclasses.replace(self.beat, **changes)
            self._file.write(vars(self.beat))

    def _run(self) -> None:
        while not self._ended.wait(self._period):
            self.round()

    def round(self) -> None:
        """Record that this worker is alive; at half of the limit note which others are; at the limit end the run."""
        self._write(alive=time.time())
        self._file.sync()
        idle = self._clock.now() - self._moved
        if not self._armed or self._ended.is_set() or idle < self.stall_seconds / 2:
            self._alive_before = {}
        elif not self._alive_before:
            self._alive_before = {beat.rank: beat.alive for beat in read_beats(self.folder)}
        elif idle > self.stall_seconds:
            self._end_the_run(idle)

    def _end_the_run(self, idle: float) -> None:
        """End this process; its exit code makes the launcher end all others."""
        beats = read_beats(self.folder)
        stalled = slowest_worker(beats, self._alive_before)
        waiting = [beat.rank for beat in beats if beat.rank != stalled.rank]
        time.sleep(0.2 * waiting.index(self.rank) if self.rank in waiting else 1.0)  # So that one worker reports it.
        print(
            f"{ERROR_PREFIX}{stalled}: has made no progress for {idle:.0f} s, "
            "the others are waiting for it (--stall-seconds); frozen, overloaded or lost",
            file=sys.stderr,
            flush=True,
        )
        os._exit(1)


class Sender(threading.Thread):
    """Sends this worker's heartbeat to the launcher every second until the process ends.

    Args:
        line: Returns the line of a student's script at which the process is.
    """

    def __init__(self, line: Callable[[], str]):
        super().__init__(name="labs-sender", daemon=True)
        self._line, self._lock = line, threading.Lock()
        self._stream = os.dup(2)  # A script may lead its error stream elsewhere.
        self._launched = Beat(rank(), socket.gethostname(), os.getpid(), 0, 0, 0, time.time())
        self._sent = self._launched

    def run(self) -> None:
        while True:
            self.send()
            time.sleep(1)

    def send(self) -> None:
        """Send the heartbeat; that of a finished run is sent once."""
        with self._lock, contextlib.suppress(OSError):  # The launcher has ended, and soon this worker will.
            beat = _current.beat if _current else self._launched
            if beat.alive or beat is not self._sent:
                # One write, which the output of other threads cannot split.
                text = json.dumps(vars(beat) | {"line": self._line()})
                os.write(self._stream, f"\x1elabs {text}\x1e\n".encode())
            self._sent = beat


# Global, because a process runs one worker at a time. It stays after the run's end, for error messages.
_current: Heartbeat | None = None
_sender: Sender | None = None


def send_beats(line: Callable[[], str] = str) -> None:
    """Send this worker's heartbeats to `labs`, if that has started it; argument as in `Sender`."""
    global _sender
    if stop.SUPERVISOR in os.environ and _sender is None:
        _sender = Sender(line)
        _sender.start()


def begin(folder: Path, rank: int, stall_seconds: float, host: str) -> Heartbeat:
    """Start this process's heartbeat; arguments as in `Heartbeat`."""
    global _current
    _current = Heartbeat(folder, rank, stall_seconds, host)
    if _sender:  # At once: a worker that freezes within a second would count as one that is still starting.
        _sender.send()
    return _current


def current() -> Heartbeat:
    """Return this process's heartbeat."""
    return _current  # type: ignore[return-value]  # None before the first run, which only its end asks.


def rank() -> int:
    """Return this worker's rank; before Horovod has started, from the launcher's environment."""
    if _current:
        return _current.rank
    names = ("OMPI_COMM_WORLD_RANK", "HOROVOD_RANK", "PMI_RANK", "SLURM_PROCID")
    return int(next((os.environ[name] for name in names if name in os.environ), 0))


def error_prefix() -> str:
    """Return "rank 1 on host (epoch 2, step 13): ", or an empty string before any run has begun."""
    return f"{_current.beat}: " if _current else ""
