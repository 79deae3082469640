"""Heartbeats: each worker records its epoch and step, so that a stalled one is detected.

Every worker sends its heartbeat to `labs run` or `labs launch` over its error stream, every second: of a node that has
lost its network nothing else is heard. The supervisor names the worker for which the others wait, and ends the run. A
worker of a lab also has a small file in the run's folder, updated at each step, which survives even a SIGKILL: `labs
watch` and lab 12 read it. A worker that takes no step for too long ends itself: its launcher may be out of reach.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from labs.run.errors import ERROR_PREFIX

FOLDER = "heartbeats"
"""Name of the heartbeats' folder in a run's folder."""
BEAT_LINE = re.compile(r"\x1elabs (\{[^\x1e]*\})\x1e\n?")
BYTES = 4096
"""The size of a heartbeat's file. A rename a second, as of an atomic write, would burden a shared file system."""
SUPERVISOR = "LABS_SUPERVISOR"
"""The environment variable that tells workers the process of `labs run`, as "host:pid"; they end with it and send it
their heartbeats."""
SECONDS_TO_BE_ENDED = 10.0
"""After a stall the supervisor has this long to end a worker and name the cause; then the worker ends itself."""


@dataclasses.dataclass(frozen=True)
class Heartbeat:
    """Where a worker is in the training, and when it last took a step."""

    rank: int
    host: str
    pid: int
    epoch: int = 0
    step: int = 0
    moved: float = 0.0
    """When the worker took its last step, in seconds since 1970; 0 before its run has begun."""
    alive: float = 0.0
    """When the heartbeat's thread last ran, in seconds since 1970; in a stopped process it does not run. 0: the worker
    has finished."""
    is_training: bool = False
    """Whether the next step must come within the stall limit."""
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
    line: str = ""
    """Where a student's script is, as "train.py, line 31"."""

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.host} ({self.position()})"

    def position(self) -> str:
        """Return the epoch and the step, or the line of a script, as text."""
        return self.line or (f"epoch {self.epoch}, step {self.step}" if self.epoch else "before the first step")


def read_folder(folder: Path) -> list[Heartbeat]:
    """Return the last heartbeat of every worker that has written one, by rank.

    Args:
        folder: The heartbeats' folder of a run; it may be missing.
    """
    texts = []
    for path in sorted(folder.glob("rank-*")):
        with contextlib.suppress(OSError):  # Deleted at the end of the run.
            texts.append(path.read_text(errors="replace"))
    return list(_parse(texts))


def parse_line(text: str) -> Iterator[Heartbeat]:
    """Yield the heartbeats in a line of a worker's error stream."""
    return _parse(match[1] for match in BEAT_LINE.finditer(text))


def _parse(texts: Iterable[str]) -> Iterator[Heartbeat]:
    for text in texts:
        with contextlib.suppress(TypeError, ValueError):  # Truncated on its way, or read in the middle of a write.
            yield Heartbeat(**json.loads(text))


def find_slowest(heartbeats: Iterable[Heartbeat]) -> Heartbeat:
    """Return the heartbeat of the worker that is furthest behind."""
    return min(heartbeats, key=lambda each: (each.epoch, each.step, each.moved))


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


class Monitor:
    """Records this worker's progress every second, and ends the worker when it has made none for too long.

    Args:
        rank: This worker's rank.
        line: Returns the line of a student's script at which the process is.
        folder: The heartbeats' folder of the run, on storage that all nodes share; None before a run, and for a script.
        stall_seconds: How long a worker may take between two steps.
        host: Name of this node.
    """

    def __init__(self, rank: int, line: Callable[[], str] = str, folder: Path | None = None,
                 stall_seconds: float = math.inf, host: str = ""):
        self.line, self.folder = line, folder
        self._supervised = SUPERVISOR in os.environ
        self._limit = stall_seconds + SECONDS_TO_BE_ENDED * self._supervised
        self._stream = os.dup(2)  # A script may lead its error stream elsewhere.
        self._file: int | None = None
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(folder / f"rank-{rank:05d}", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._clock = AwakeClock(2.0)  # If all workers were stopped, none of them is at fault.
        self._moved = self._clock.now()
        self.stopped_seconds = 0.0
        """For how long Ctrl-Z or Slurm has stopped this process during training."""
        self._step_ended, self._step_seconds, self._was_stopped, self._waited = time.perf_counter(), 0.0, False, 0.0
        self.heartbeat = Heartbeat(rank, host or socket.gethostname(), os.getpid())
        if folder:
            self._write(moved=time.time())
        self.check()
        self._thread = threading.Thread(target=self._run, name="labs-heartbeat", daemon=True)
        self._thread.start()

    def plan(self, epochs: int, steps: int, images: int) -> None:
        """Record what lies ahead: epochs, steps per epoch, images per step of all workers."""
        self._write(epochs=epochs, steps=steps, images=images)

    def step(self, epoch: int, step: int, waited: float = 0.0) -> None:
        """Record that this worker has reached a step; the first one starts the stall check.

        Args:
            waited: The seconds of all steps so far in which this worker waited in the exchange of gradients.
        """
        self._moved = self._clock.now()
        pace = self._time_step(epoch, step, waited)
        self._write(epoch=epoch, step=step, moved=time.time(), is_training=True, **pace)

    def still_moving(self) -> None:
        """Record that this worker is alive at the step it has reached, for example while it evaluates."""
        self._moved = self._clock.now()
        self._write(moved=time.time())

    def begin_steps(self) -> None:
        """Start timing the next step; earlier time, and any stop in it, belongs to no step."""
        self._step_ended, self._was_stopped = time.perf_counter(), False

    def _time_step(self, epoch: int, step: int, waited: float) -> dict[str, float]:
        """Time the steps since the last call; after a stop, count the time beyond the previous steps' as stopped."""
        before, ended, self._step_ended = self.heartbeat, self._step_ended, time.perf_counter()
        took, was_stopped, self._was_stopped = self._step_ended - ended, self._was_stopped, False
        waits, self._waited = waited - self._waited, waited
        if was_stopped:
            if self._step_seconds:  # How long the very first step takes is not known.
                self.stopped_seconds += max(0.0, took - self._step_seconds)
            return {}
        self._step_seconds, steps = took, step - before.step
        if epoch != before.epoch or steps <= 0:  # What lies between two epochs is no step.
            return {}
        return {"step_seconds": took / steps, "exchange_seconds": waits / steps}

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

    def pause(self) -> None:
        """Suspend the stall check until this worker's next step."""
        self._write(is_training=False)

    def close(self, finished: bool = True) -> None:
        """Stop the heartbeat; report that this worker has finished, if it has."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._thread.join()
        if finished:
            self._write(alive=0.0)
            self._send()
        os.close(self._stream)
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _run(self) -> None:
        while not self._ended.wait(1.0):
            self.check()

    def check(self) -> None:
        """Record that this worker is alive; end it if it has made no progress for too long."""
        self._write(alive=time.time())
        self._send()
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.fsync(self._file)  # Other nodes see the file only then.
        idle = self._clock.now() - self._moved
        if self.heartbeat.is_training and idle > self._limit and not self._ended.is_set():
            print(f"{ERROR_PREFIX}{self.heartbeat}: has made no progress for {idle:.0f} s (--stall-seconds); it or "
                  "another rank is frozen, overloaded or lost", file=sys.stderr, flush=True)
            os._exit(1)

    def _write(self, **changes: float) -> None:
        """Change the heartbeat, and write it to the file, in one write."""
        with self._lock:
            self.heartbeat = dataclasses.replace(self.heartbeat, **changes)  # type: ignore[arg-type]
            if self._file is not None:
                with contextlib.suppress(OSError):  # Rank 0 deletes the files of a finished run, and NFS refuses then.
                    os.pwrite(self._file, json.dumps(vars(self.heartbeat)).encode().ljust(BYTES), 0)

    def _send(self) -> None:
        """Send the heartbeat to `labs`, in one write, which the output of other threads cannot split."""
        if self._supervised:
            text = json.dumps(vars(self.heartbeat) | {"line": self.line()})
            with contextlib.suppress(OSError):  # The launcher has ended, and soon this worker will.
                os.write(self._stream, f"\x1elabs {text}\x1e\n".encode())


# Global, because a process runs one worker at a time. It stays after the run's end, for error messages.
_current: Monitor | None = None


def start(line: Callable[[], str] = str) -> None:
    """Send this worker's heartbeats to `labs`, if that has started it; argument as in `Monitor`."""
    global _current
    if SUPERVISOR in os.environ and _current is None:
        _current = Monitor(rank(), line)


def begin(folder: Path, rank: int, stall_seconds: float, host: str) -> Monitor:
    """Start the heartbeat of a run in this process; arguments as in `Monitor`."""
    global _current
    line = _current.line if _current else str
    if _current and not _current.folder:
        _current.close(finished=False)
    _current = Monitor(rank, line, folder, stall_seconds, host)
    return _current


def current() -> Monitor:
    """Return the monitor of this process's run."""
    return _current if _current and _current.folder else None  # type: ignore[return-value]  # None before the first run.


def rank() -> int:
    """Return this worker's rank; before Horovod has started, from the launcher's environment."""
    if _current:
        return _current.heartbeat.rank
    names = ("OMPI_COMM_WORLD_RANK", "HOROVOD_RANK", "PMI_RANK", "SLURM_PROCID")
    return int(next((os.environ[name] for name in names if name in os.environ), 0))


def error_prefix() -> str:
    """Return "rank 1 on host (epoch 2, step 13): ", or an empty string before any run has begun."""
    return f"{current().heartbeat}: " if current() else ""
