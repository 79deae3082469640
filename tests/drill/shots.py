"""Shots: planned, aimed, and held against what they leave."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from labs.run import atomic, heartbeat
from tests.drill import training
from tests.drill.launchers import SIZE, by_fork, by_mpirun
from tests.drill.runs import SECONDS_TO_HANG, BreachError, Run, Start, load

AHEAD = 6
"""Epochs that a start may get through before it is shot: a campaign is to last for some twenty shots."""


@dataclass(frozen=True)
class Shot:
    """One shot, as it is planned."""

    target: str
    aimed: bool
    """Into the writing of the next checkpoint; else at any moment, from the launcher's first one on."""
    share: float
    """Of the time that a checkpoint takes, or of the window: when to shoot."""


def plan_shot(rng: random.Random, launcher: Callable, aimed: bool) -> Shot:
    """Plan a shot."""
    targets = ["rank 0", "rank 1", "launcher", *(["mpirun"] if launcher is by_mpirun else [])]
    if aimed:
        targets.append("rank 0")  # It is the one that writes.
    return Shot(rng.choice(targets), aimed, rng.random())


@dataclass(frozen=True)
class Pace:
    """How long the parts of an undisturbed run last, in seconds."""

    start: float
    epoch: float
    save: float
    end: float

    def window(self, epochs: int) -> float:
        """Return how long a start lasts after a number of epochs; of many, how long it may be shot."""
        return self.start + (epochs * self.epoch + self.end if epochs < AHEAD else AHEAD * self.epoch)


def undisturbed(run: Run) -> Pace:
    """Bring a run to its end, and return its pace."""
    start, marks = Start(by_fork, run), {"begun": [], "done": []}
    while heard := start.hear():
        for kind in heard:
            marks[kind].append(time.perf_counter() - start.began)
    if start.close():
        raise BreachError(f"an undisturbed run failed: {start.log.read_text()}")
    begun, done = (np.array(times) for times in marks.values())
    epoch = float(np.diff(done).mean())
    return Pace(done[0] - epoch, epoch, float(np.median(done - begun)), time.perf_counter() - start.began - done[-1])


def aim_at(start: Start, shot: Shot, pace: Pace) -> int:
    """Wait for the moment of a shot, and return whom it kills: 0 if the start has ended before."""
    if not shot.aimed:
        ended = start.ends(shot.share * pace.window(start.run.config.epochs - start.run.reported))
        return 0 if ended else start.find(shot.target) or start.pid
    while not (victim := start.find(shot.target)):  # Now: a checkpoint is written in less time than a look takes.
        if start.ends(0.02):
            return 0
    heard = ["done"]
    while heard[-1] != "begun":
        heard = start.hear()
        if not heard:
            return 0
    return 0 if start.ends(shot.share * pace.save) else victim


@dataclass
class Tally:
    """What has happened so far."""

    kills: Counter = field(default_factory=Counter)
    landed: Counter = field(default_factory=Counter)
    starts: Counter = field(default_factory=Counter)
    campaigns: int = 0
    resumes: int = 0
    loaded: int = 0
    lost: float = 0.0
    """At most, in epochs."""
    seconds: float = 0.0

    @classmethod
    def read(cls, path: Path) -> Tally:
        """Return what `write` has written, or an empty one."""
        if not path.exists():
            return cls()
        kept = json.loads(path.read_text())
        kills = Counter({(target, aimed): count for target, aimed, count in kept["kills"]})
        return cls(**kept | {"kills": kills, "landed": Counter(kept["landed"]), "starts": Counter(kept["starts"])})

    def write(self, path: Path) -> None:
        """Write this to a file."""
        atomic.write_json(path, vars(self) | {"kills": [[*key, count] for key, count in self.kills.items()]})

    @property
    def shots(self) -> int:
        return self.kills.total()

    @property
    def aimed(self) -> int:
        return sum(count for (_, aimed), count in self.kills.items() if aimed)


def shoot(launcher: Callable, run: Run, shot: Shot | None, pace: Pace, tally: Tally) -> None:
    """Start the run once more, shoot, and look at what is left.

    Raises:
        BreachError: A promise was not kept.
    """
    torn, resumes = run.torn(), bool(run.saved())
    start = Start(launcher, run)
    tally.starts[launcher.__name__] += 1
    victim = aim_at(start, shot, pace) if shot else 0
    if victim:
        with contextlib.suppress(ProcessLookupError):  # It has done its work.
            os.kill(victim, signal.SIGKILL)
    elif not start.ends(SECONDS_TO_HANG):
        raise BreachError("the run hangs")
    code, output = start.close(), start.log.read_text(errors="replace")
    if code and not victim:
        raise BreachError(f"a start that was not shot at failed with code {code}")
    if code:
        target = "launcher" if victim == start.pid else shot.target
        tally.kills[target, shot.aimed] += 1
        tally.landed[target] += bool(run.torn() - torn)
    if f"{training.LAB.name}: {SIZE} workers" in output and run.torn() & torn:
        raise BreachError("what a killed writer left stays forever")
    for path in run.saved():
        try:
            load(path)
        except Exception as problem:
            raise BreachError(f"{path.name} does not load: {problem}") from None
    _follow(run, output, resumes, tally)


def _follow(run: Run, output: str, resumes: bool, tally: Tally) -> None:
    """Hold what a start said against what the earlier ones had reached."""
    resumed = re.search(r"^resumed after epoch (\d+)(?:, step (\d+))?", output, re.MULTILINE)
    tally.resumes += resumes
    tally.loaded += bool(resumed)
    if resumes and ("nothing to resume" in output or "is damaged" in output):
        raise BreachError("there was a checkpoint, and it was not used")
    if resumed:
        point = int(resumed[1]) + int(resumed[2] or 0) / training.STEPS
        tally.lost = max(tally.lost, run.reached - point)
        if point < run.reported:
            raise BreachError(f"epoch {run.reported} was said to be finished, and it {resumed[0]}")
        if run.reached - point > 1:
            raise BreachError(f"it had come {run.reached:.2f} epochs far, and {resumed[0]}")
    run.reported = max([run.reported, *map(int, re.findall(r"^epoch (\d+)/", output, re.MULTILINE))])
    for beat in heartbeat.read_beats(run.folder / "heartbeats"):
        run.reached = max(run.reached, beat.epoch - 1 + beat.step / training.STEPS)


def compare(run: Run, calm: Run) -> None:
    """Hold the end of a run against that of another.

    Raises:
        BreachError: They are not equal bit for bit.
    """
    mine, expected = run.outcome(), calm.outcome()
    differ = [name for name in expected if mine.get(name) != expected[name]]
    if differ:
        raise BreachError(f"{run.options.name} has ended with other values than {calm.options.name}: "
                          f"{len(differ)} of {len(expected)} differ, such as {differ[0]}")
