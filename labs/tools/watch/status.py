"""What the files of a run's folder say about it: its state, and its workers' heartbeats."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import statistics
import time
from pathlib import Path

from labs.run import catalogue, heartbeat, run_lock
from labs.run.errors import LabError, quoted
from labs.run.heartbeat import Heartbeat
from labs.run.paths import format_path

SILENT = 10.0
"""After as many seconds without a heartbeat a worker does not run; they come about once a second."""
LOST = 30.0
"""After as many seconds without any heartbeat the run counts as dead. It may also be stopped, by Ctrl-Z or Slurm."""
SECOND_LOOK = 2.5
"""Seconds after which each worker that runs has written again: the clocks of nodes and of this machine may differ."""


@dataclasses.dataclass(frozen=True)
class Status:
    """A run at one moment."""

    lab: str
    run: str
    beats: list[Heartbeat]
    """By rank."""
    silence: dict[int, float]
    """Seconds since each rank's last heartbeat; infinite for one that has finished."""
    finished: bool = False
    """Whether it has a record."""
    saved: bool = False
    """Whether it has a checkpoint."""

    @property
    def last(self) -> Heartbeat | None:
        """The heartbeat of the worker that is furthest behind; None before any has started."""
        return heartbeat.find_slowest(self.beats) if self.beats else None

    @property
    def silent(self) -> float:
        """Seconds since the last heartbeat of any worker that has not finished; infinite if all have."""
        return min(self.silence.values(), default=0.0)

    @property
    def awake(self) -> bool:
        """Whether a worker runs."""
        return bool(self.beats) and self.silent < SILENT

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return self.finished or self.silent > LOST

    @property
    def training(self) -> bool:
        """Whether all workers are within an epoch of the training."""
        return all(beat.epoch and not (beat.steps and (beat.step >= beat.steps or beat.epoch > beat.epochs))
                   for beat in self.beats)

    @property
    def step_seconds(self) -> float:
        """Seconds per step; 0 before they are known."""
        return statistics.median([beat.step_seconds for beat in self.beats if beat.step_seconds] or [0.0])


class Watcher:
    """Reads a run's folder again and again."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._seen: dict[int, tuple[float, float]] = {}
        """By rank: its last heartbeat by its node's clock, and when it was new by this machine's monotonic clock."""

    def look(self) -> Status:
        """Return the run's status.

        Raises:
            LabError: Its folder is gone.
        """
        if not self.folder.is_dir():
            raise LabError(f"{format_path(self.folder)} is gone: the run failed before it had saved anything; its own "
                           "output says why")
        beats = heartbeat.read_folder(self.folder / heartbeat.FOLDER)
        silence = {beat.rank: self._silence(beat) for beat in beats}
        return Status(self.folder.parent.name, self.folder.name, beats, silence,
                      (self.folder / "record.json").exists(), run_lock.is_saved(self.folder))

    def _silence(self, beat: Heartbeat) -> float:
        """Return the seconds since a rank's last heartbeat: by its node's clock at first, then by this machine's."""
        if not beat.alive:
            return math.inf
        now = time.monotonic()
        alive, new = self._seen.get(beat.rank, (beat.alive, now - max(0.0, time.time() - beat.alive)))
        self._seen[beat.rank] = beat.alive, new if alive == beat.alive else now
        return now - self._seen[beat.rank][1]


def choose(wanted: str | None, root: Path) -> Watcher:
    """Return the watcher of a run: by its name, the newest of a lab, or by default the newest that is running.

    Args:
        wanted: A run's name, "LAB/NAME", or a lab's name or number.
        root: The results folder.

    Raises:
        LabError: There is no such run.
    """
    notes = sorted(root.glob("*/*/holder"), key=lambda path: path.stat().st_mtime, reverse=True)
    folders = [path.parent for path in notes]  # The run that was started or continued last comes first.
    if wanted is None:
        chosen = [each for each in folders if (each / heartbeat.FOLDER).is_dir()]
        problem = (f"no run is running in {format_path(root)}; one that has just been started appears after some "
                   "seconds, and `labs watch LAB` shows the last run of a lab")
    else:
        chosen = [each for each in folders if wanted in (each.name, f"{each.parent.name}/{each.name}")][:1]
        problem = f"no run and no lab is called {quoted(wanted)} in {format_path(root)}; finished runs: `labs results`"
        with contextlib.suppress(LabError):
            lab = catalogue.resolve(wanted)
            chosen = chosen or [each for each in folders if each.parent.name == lab][:1]
            problem = f"no run of {lab} in {format_path(root)}"
    watchers = [Watcher(folder) for folder in chosen]
    looks = [each.look() for each in watchers]
    if any(SILENT < now.silent < math.inf for now in looks) and not any(now.awake for now in looks):
        time.sleep(SECOND_LOOK)
        looks = [each.look() for each in watchers]
    if wanted is None:
        watchers = [each for each, now in zip(watchers, looks, strict=True) if now.awake]
    if not watchers:
        raise LabError(problem)
    return watchers[0]
