"""Heartbeats: each worker writes its epoch and step to a small file in the run's folder, which survives a SIGKILL.

From these files `labs run` learns for which worker the others wait, and ends the run.
"""

import contextlib
import dataclasses
import json
import os
import sys
import threading
import time
from pathlib import Path

from labs.run.errors import ERROR_PREFIX

FOLDER = "heartbeats"  # In a run's folder.
BYTES = 4096  # Of a heartbeat's file, written in place: a rename a second would burden a shared file system.
OWN_SCRIPT = "LABS_SCRIPT_HEARTBEATS"  # The variable with the folder for the heartbeats of a student's own script.
SUPERVISOR = "LABS_SUPERVISOR"  # The variable with the process of `labs run`, as "host:pid"; its workers end with it.
SECONDS_TO_BE_ENDED = 10.0  # Within these the supervisor ends a stalled worker and names the cause, or it ends itself.


@dataclasses.dataclass(frozen=True)
class Heartbeat:
    """Where a worker is in the training, and when it last took a step; times are seconds since 1970."""

    rank: int
    host: str
    epoch: int = 0
    step: int = 0
    moved: float = 0.0  # When the worker took its last step.
    alive: float = 0.0  # When the heartbeat's thread last ran: in a stopped process it does not. 0: it has finished.
    is_training: bool = False  # Whether the next step must come within the stall limit.
    is_lab: bool = True  # Otherwise it runs a student's own script, whose steps are not known.
    epochs: int = 0  # Of the whole run; like the figures below, 0 if not known.
    steps: int = 0  # Per epoch.
    step_seconds: float = 0.0
    exchange_seconds: float = 0.0  # Of a step: from the last gradient to the last mean, waiting for slower workers.

    def __str__(self) -> str:
        position = f"epoch {self.epoch}, step {self.step}" if self.epoch else "before the first step"
        return f"rank {self.rank} on {self.host}" + f" ({position})" * self.is_lab


def read_folder(folder: Path) -> list[Heartbeat]:
    """Return the last heartbeat of every worker that has written one, by rank; the folder may be missing."""
    heartbeats = []
    for path in sorted(folder.glob("rank-*")):
        with contextlib.suppress(OSError, TypeError, ValueError):  # Deleted, or read in the middle of a write.
            heartbeats.append(Heartbeat(**json.loads(path.read_text())))
    return heartbeats


class AwakeClock:
    """Counts the seconds in which this process was not stopped (Ctrl-Z, Slurm); read it every two seconds at least."""

    def __init__(self) -> None:
        self._lock, self._seconds, self._read = threading.Lock(), 0.0, time.monotonic()

    def now(self) -> float:
        """Return the seconds since this clock was made."""
        with self._lock:
            now = time.monotonic()
            self._seconds += min(now - self._read, 2.0)
            self._read = now
            return self._seconds


class Monitor:
    """Records this worker's progress every second; ends the worker, whose launcher may be out of reach, if it has none.
    """

    def __init__(self, folder: Path, rank: int, stall_seconds: float, host: str, is_lab: bool = True):
        self._limit = stall_seconds + SECONDS_TO_BE_ENDED * (SUPERVISOR in os.environ)
        folder.mkdir(parents=True, exist_ok=True)
        self._file = os.open(folder / f"rank-{rank:05d}", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
        self._lock, self._ended, self._clock = threading.Lock(), threading.Event(), AwakeClock()
        self._moved, self._timed, self._waited = self._clock.now(), time.perf_counter(), 0.0
        self.heartbeat = Heartbeat(rank, host, moved=time.time(), is_lab=is_lab)
        self._check()
        self._thread = threading.Thread(target=self._run, name="labs-heartbeat", daemon=True)
        self._thread.start()

    def plan(self, epochs: int, steps: int) -> None:
        """Record what lies ahead: epochs, and steps per epoch."""
        self._write(epochs=epochs, steps=steps)

    def step(self, epoch: int, step: int, waited: float = 0.0) -> None:
        """Record that this worker has reached a step, and has waited for so many seconds in exchanges so far."""
        self._moved, before, now = self._clock.now(), self.heartbeat, time.perf_counter()
        pace, steps = {}, step - before.step
        if epoch == before.epoch and steps > 0:  # What lies between two epochs is no step.
            pace = {"step_seconds": (now - self._timed) / steps, "exchange_seconds": (waited - self._waited) / steps}
        self._timed, self._waited = now, waited
        self._write(epoch=epoch, step=step, moved=time.time(), is_training=True, **pace)

    def still_moving(self) -> None:
        """Record that this worker is alive at the step it has reached, for example while it evaluates."""
        self._moved = self._clock.now()
        self._write(moved=time.time())

    def pause(self) -> None:
        """Suspend the stall check until this worker's next step."""
        self._write(is_training=False)

    def close(self) -> None:
        """Stop the heartbeat; record that this worker has finished."""
        if not self._ended.is_set():
            self._ended.set()
            self._thread.join()
            self._write(alive=0.0)
            os.close(self._file)
            self._file = -1  # Its number may soon be another file's.

    def _run(self) -> None:
        while not self._ended.wait(1.0):
            self._check()

    def _check(self) -> None:
        """Record that this worker is alive; end it if it has made no progress for too long."""
        self._write(alive=time.time())
        with contextlib.suppress(OSError):
            os.fsync(self._file)  # Other nodes see the file only then.
        idle = self._clock.now() - self._moved
        if self.heartbeat.is_training and idle > self._limit and not self._ended.is_set():
            print(f"{ERROR_PREFIX}{self.heartbeat}: no progress for {idle:.0f} s (--stall-seconds); it or another rank "
                  "is frozen, overloaded or lost", file=sys.stderr, flush=True)
            os._exit(1)

    def _write(self, **changes: float) -> None:
        """Change the heartbeat, and write it to the file, in one write."""
        with self._lock, contextlib.suppress(OSError):  # Rank 0 deletes a finished run's files, and NFS refuses then.
            self.heartbeat = dataclasses.replace(self.heartbeat, **changes)  # type: ignore[arg-type]
            os.pwrite(self._file, json.dumps(vars(self.heartbeat)).encode().ljust(BYTES), 0)


# Global, because a process runs one worker at a time. It stays after the run's end, for error messages.
_current: Monitor | None = None


def begin(folder: Path, rank: int, stall_seconds: float, host: str, is_lab: bool = True) -> Monitor:
    """Start the heartbeat of a run in this process; arguments as in `Monitor`."""
    global _current
    _current = Monitor(folder, rank, stall_seconds, host, is_lab)
    return _current


def current() -> Monitor:
    """Return the monitor of this process's run."""
    return _current  # type: ignore[return-value]  # None before the first run.


def rank() -> int:
    """Return this worker's rank; before Horovod has started, from the launcher's environment."""
    if _current:
        return _current.heartbeat.rank
    names = ("OMPI_COMM_WORLD_RANK", "HOROVOD_RANK", "PMI_RANK", "SLURM_PROCID")
    return int(next((os.environ[name] for name in names if name in os.environ), 0))
