"""Who is where: each worker notes its place in the run, and a frozen worker is found by the others.

Horovod's own stall check runs on rank 0 alone and is blind when rank 0 itself is the frozen one. Here every worker has
a place: a small memory-mapped file in the run's folder, written at each step at the cost of a memory write, so that
it outlives even a SIGKILL, and a thread that reads the places of the others. Workers of `labs run` also send their
place as a heartbeat on their error stream, about once a second: from it `labs run` learns which node it no longer hears
from. The file of a node that has lost its network cannot tell.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import mmap
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from labs.run import atomic, lifeline
from labs.run.errors import ERROR_PREFIX

PLACE_BYTES = 256
HEARTBEAT = re.compile(r"\x1elabs (\{[^\x1e]*\})\x1e\n?")


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a worker was when it last moved."""

    rank: int
    host: str
    pid: int
    epoch: int
    step: int
    moved: float
    """When it took its last step, in seconds since 1970."""
    alive: float
    """When its watching thread last ran: a stopped process has none that runs. 0: it has left the run in good order."""

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.host} ({self.where()})"

    def where(self) -> str:
        """Return its epoch and step."""
        return f"epoch {self.epoch}, step {self.step}" if self.epoch else "before the first step"


def read_places(folder: Path) -> list[Place]:
    """Return the places of all workers that have noted one, by rank."""
    places = []
    for path in sorted(folder.glob("rank-*")):
        try:
            places.append(Place(**json.loads(path.read_bytes().rstrip(b"\0 "))))
        except ValueError:
            continue  # Caught between two bytes of a write: the next look will see it.
    return places


def heartbeats(text: str) -> Iterator[Place]:
    """Yield the heartbeats in a line that workers have sent."""
    for match in HEARTBEAT.finditer(text):
        try:
            yield Place(**json.loads(match[1]))
        except (TypeError, ValueError):
            continue  # Cut apart on its way: the next one comes in a second.


def culprit(places: list[Place], now: float, limit: float) -> Place:
    """Return the worker for which the others wait: one whose process stands still, else the one furthest behind."""
    dead = [place for place in places if now - place.alive > limit / 2]
    return min(dead or places, key=lambda place: (place.epoch, place.step, place.moved))


class Watch:
    """Notes this worker's place and ends the run when it stands still.

    Args:
        folder: Where the places of this run are; on storage that all nodes share.
        rank: This worker's rank.
        stall_seconds: How long a worker may stand still between two steps.
        host: What to call this node.
    """

    def __init__(self, folder: Path, rank: int, stall_seconds: float, host: str | None = None):
        self.folder, self.rank, self.stall_seconds = folder, rank, stall_seconds
        folder.mkdir(parents=True, exist_ok=True)
        self._file = open(folder / f"rank-{rank:05d}", "w+b")  # noqa: SIM115 - held open for the whole run.
        with atomic.naming(Path(self._file.name)):  # Written, not truncated: on a full disk the map would be a SIGBUS.
            self._file.write(bytes(PLACE_BYTES))
            self._file.flush()
        self._map = mmap.mmap(self._file.fileno(), PLACE_BYTES)
        self._lock = threading.Lock()
        self._armed = False
        self._place = Place(rank, host or socket.gethostname(), os.getpid(), 0, 0, time.time(), time.time())
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="labs-watch", daemon=True)
        self._write()
        self._thread.start()

    def step(self, epoch: int, step: int) -> None:
        """Note that this worker has reached a step; from the first one on it must not stand still."""
        self._armed = True
        self._write(epoch=epoch, step=step, moved=time.time())

    def rest(self) -> None:
        """Stop minding whether this worker moves, until its next step."""
        self._armed = False

    def place(self) -> Place:
        """Return this worker's place."""
        return self._place

    def close(self) -> None:
        """Stop watching."""
        self._ended.set()
        self._thread.join()
        self._send(dataclasses.replace(self._place, alive=0))
        with self._lock:
            self._map.close()
            self._file.close()

    def _write(self, **changes) -> None:
        with self._lock:
            self._place = dataclasses.replace(self._place, **changes)
            text = json.dumps(dataclasses.asdict(self._place)).encode()
            self._map[:] = text.ljust(PLACE_BYTES, b"\0")

    @staticmethod
    def _send(place: Place) -> None:
        """Send a heartbeat through the launcher, in one write: what other threads print cannot fall into it."""
        if lifeline.SUPERVISOR in os.environ:
            with contextlib.suppress(OSError):  # The launcher has ended, and soon this worker will.
                os.write(2, f"\x1elabs {json.dumps(dataclasses.asdict(place))}\x1e\n".encode())

    def _watch(self) -> None:
        while not self._ended.wait(min(1.0, self.stall_seconds / 10)):
            self._write(alive=time.time())
            self._send(self._place)
            self._map.flush()  # Other nodes see it through the shared file system only when it is written back.
            if self._armed and time.time() - self._place.moved > self.stall_seconds:
                self._end_the_run()

    def _end_the_run(self) -> None:
        """End this process and, through the launcher that sees it end badly, all others."""
        places = read_places(self.folder)
        frozen = culprit(places, time.time(), self.stall_seconds)
        alive = [place.rank for place in places if place.rank != frozen.rank]
        time.sleep(0.2 * alive.index(self.rank) if self.rank in alive else 1.0)  # One of the waiting tells it.
        print(
            f"{ERROR_PREFIX}{frozen}: has not moved for {time.time() - frozen.moved:.0f} s, the others wait for it"
            " (--stall-seconds); frozen, overloaded or lost",
            file=sys.stderr,
            flush=True,
        )
        os._exit(1)


# A process runs one worker of one run at a time; the place of the last one is told at its end.
_current: Watch | None = None


def begin(folder: Path, rank: int, stall_seconds: float, host: str) -> Watch:
    """Begin to watch this process."""
    global _current
    _current = Watch(folder, rank, stall_seconds, host)
    return _current


def current() -> Watch:
    """Return the watch over this process's worker."""
    return _current  # type: ignore[return-value]  # None before the first run, which only its end asks.


def rank() -> int:
    """Return this worker's rank, known from the launcher's environment even before Horovod has started."""
    if _current:
        return _current.rank
    names = ("OMPI_COMM_WORLD_RANK", "HOROVOD_RANK", "PMI_RANK", "SLURM_PROCID")
    return int(next((os.environ[name] for name in names if name in os.environ), 0))


def whereabouts() -> str:
    """Return "rank 1 on host (epoch 2, step 13): ", or nothing when no run has begun."""
    return f"{_current.place()}: " if _current else ""
