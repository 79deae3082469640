"""Kills a training again and again at random moments, and checks what the kit promises.

    python -m tests.drill --kills 1000        (make drill)

A campaign is one training of two workers (training.py). It is killed some 20 times and resumed after each kill, and
must end like an undisturbed run: weights, optimizer state and history, bit for bit. A kill is a SIGKILL to a worker or
to a launcher: half of them at any moment, half while a checkpoint is being written. A kill has landed in a save if it
left the half-written file behind.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import random
import re
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import matplotlib.figure  # noqa: F401 - loaded once, before the forks.
import numpy as np
import psutil

from labs.run import heartbeat
from labs.run.options import Options
from labs.training import checkpoint
from tests.drill import training
from tests.drill.launchers import LIBC, SET_PARENT_DEATH_SIGNAL, SIZE, by_fork, by_mpirun, fork

SET_CHILD_SUBREAPER = 36  # prctl.h
CLOCKS = ("train_seconds", "val_seconds")
SECONDS_TO_HANG, SECONDS_TO_END = 120.0, 30.0
AHEAD = 6
"""Epochs that a start may train before it is killed, so that a campaign lasts for many kills."""
SECONDS_OF_A_SAVE = 0.03


class BreachError(Exception):
    """A promise that was not kept."""


class Run:
    """One run that is started until it comes to its end, and what is known of it."""

    def __init__(self, root: Path, name: str, config: training.Config, save_seconds: float = Options.save_seconds):
        self.config, self.options = config, Options(name, root, resume=True, save_seconds=save_seconds)
        self.folder = root / training.LAB.name / name
        self.reported, self.reached = 0, 0.0
        """Epochs that were reported as finished, and epochs up to the last step."""

    @property
    def finished(self) -> bool:
        return (self.folder / "record.json").exists()

    def torn(self) -> set[str]:
        """Return the files that are being written."""
        return {path.name for path in self.folder.glob("checkpoints/.*.part")}

    def saved(self) -> list[Path]:
        return checkpoint.by_age(self.folder / "checkpoints")

    def outcome(self) -> dict[str, object]:
        """Return what no kill may change: the arrays of the last checkpoint, and the history without clocks."""
        history = json.loads((self.folder / "record.json").read_text())["history"]
        rows = [{name: value for name, value in row.items() if name not in CLOCKS} for row in history]
        return {"history": rows} | {name: (array.dtype.str, array.shape, array.tobytes())
                                    for name, array in load(self.saved()[-1]).items() if name != "meta"}

    def check(self, output: str, resumes: bool) -> None:
        """Compare what a start said with what the earlier ones had reached."""
        if resumes and ("nothing to resume" in output or "is damaged" in output):
            raise BreachError("there was a checkpoint, and it was not used")
        if resumed := re.search(r"^resumed after epoch (\d+)(?:, step (\d+))?", output, re.MULTILINE):
            point = int(resumed[1]) + int(resumed[2] or 0) / training.STEPS
            if point < self.reported or self.reached - point > 1:
                raise BreachError(f"{self.reported} epochs were reported, {self.reached:.2f} trained; {resumed[0]}")
        for path in self.saved():
            try:
                load(path)
            except Exception as problem:
                raise BreachError(f"{path.name} does not load: {problem}") from None
        self.reported = max([self.reported, *map(int, re.findall(r"^epoch (\d+)/", output, re.MULTILINE))])
        for beat in heartbeat.read_beats(self.folder / heartbeat.FOLDER):
            self.reached = max(self.reached, beat.epoch - 1 + beat.step / training.STEPS)


def load(path: Path) -> dict[str, np.ndarray]:
    """Read a checkpoint to its last byte; every array in it has a CRC."""
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


class Start:
    """One start of a run: a launcher, and below it the workers."""

    def __init__(self, launcher: Callable, run: Run):
        self.run, self.log, self.began = run, run.folder.parent / f"{run.options.name}.log", time.perf_counter()
        self.pid = fork(lambda: self._launch(launcher))
        self.end = os.pidfd_open(self.pid)

    def _launch(self, launcher: Callable) -> None:
        LIBC.prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)  # The drill may be ended by a signal too.
        os.setsid()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log, "wb") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        launcher(self.run.config, self.run.options)

    def ends(self, seconds: float) -> bool:
        """Wait for the end so long, and return whether it has come."""
        return bool(select.select([self.end], [], [], seconds)[0])

    def find(self, target: str) -> int:
        """Return the pid of a target; 0 if there is none yet."""
        if target == "launcher":
            return self.pid
        for process in psutil.Process(self.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                rank = process.environ().get("OMPI_COMM_WORLD_RANK")
                if target in (process.name(), f"rank {rank}") or (target == "mpirun" and process.name() == "prterun"):
                    return process.pid
        return 0

    def close(self) -> tuple[int, str]:
        """Wait until no process of the start is left, and return the launcher's exit code and its output."""
        if not self.ends(SECONDS_TO_END):
            raise BreachError("the launcher does not end")
        os.close(self.end)
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        deadline = time.monotonic() + SECONDS_TO_END
        with contextlib.suppress(ChildProcessError):  # There is none: what it left behind would be this process's.
            while True:
                if not os.waitpid(-1, os.WNOHANG)[0]:
                    if time.monotonic() > deadline:
                        raise BreachError(f"left behind: {psutil.Process().children(recursive=True)}")
                    time.sleep(0.005)
        return code, self.log.read_text(errors="replace")


def undisturbed(run: Run) -> tuple[float, float]:
    """Bring a run to its end, and return the seconds to its first checkpoint and those of one epoch."""
    start = Start(by_fork, run)
    while not run.saved() and not start.ends(0.01):
        pass
    first = time.perf_counter() - start.began
    start.ends(SECONDS_TO_HANG)
    epoch = (time.perf_counter() - start.began - first) / run.config.epochs
    code, output = start.close()
    if code:
        raise BreachError(f"an undisturbed run failed: {output}")
    return first, epoch


def aim(start: Start, target: str, in_a_save: bool, window: float) -> int:
    """Wait for the moment of a kill, and return whom it hits: 0 if the start has ended before."""
    if not in_a_save:
        return 0 if start.ends(random.uniform(0, window)) else start.find(target) or start.pid
    while not (victim := start.find(target)):  # Now: a checkpoint is written in less time than a search takes.
        if start.ends(0.02):
            return 0
    before = start.run.torn()
    while not start.run.torn() - before:
        if start.ends(0.001):
            return 0
    return 0 if start.ends(random.uniform(0, SECONDS_OF_A_SAVE)) else victim


def kill(launcher: Callable, run: Run, in_a_save: bool | None, window: float, tally: Counter) -> None:
    """Start the run once more, kill a part of it (unless `in_a_save` is None), and check what is left."""
    torn, resumes = run.torn(), bool(run.saved())
    start = Start(launcher, run)
    target = random.choice(["rank 0", "rank 1", "launcher", *["mpirun"] * (launcher is by_mpirun),
                            *["rank 0"] * bool(in_a_save)])  # Rank 0 is the one that writes.
    victim = 0 if in_a_save is None else aim(start, target, in_a_save, window)
    if victim:
        with contextlib.suppress(ProcessLookupError):  # It has done its work.
            os.kill(victim, signal.SIGKILL)
    elif not start.ends(SECONDS_TO_HANG):
        raise BreachError("the run hangs")
    code, output = start.close()
    if code and not victim:
        raise BreachError(f"a start that was not disturbed failed with code {code}")
    if code:
        target = "launcher" if victim == start.pid else target
        tally[target, "aimed into a save" if in_a_save else "at any moment"] += 1
        tally[target, "landed inside a save"] += bool(run.torn() - torn)
    if f"{training.LAB.name}: {SIZE} workers" in output and run.torn() & torn:
        raise BreachError("what a killed writer left stays forever")
    run.check(output, resumes)


COLUMNS = ("at any moment", "aimed into a save", "landed inside a save")


def total(tally: Counter, *columns: str) -> int:
    return sum(count for (_, column), count in tally.items() if column in columns)


def drill(kills: int, seed: int, root: Path, per_campaign: int, every: int) -> tuple[Counter, int]:
    """Run campaigns until the given number of kills, and return their tally and the number of campaigns."""
    random.seed(seed)
    tally: Counter = Counter()
    campaigns = starts = 0
    while (done := total(tally, *COLUMNS[:2])) < kills:
        config = training.Config(seed=1000 * seed + campaigns)
        calm = Run(root, f"seed{config.seed}-undisturbed", config)
        first, epoch = undisturbed(calm)
        # Every second campaign saves between its steps as well, every third of a second.
        run = Run(root, f"seed{config.seed}", config, **({"save_seconds": 0.3} if campaigns % 2 else {}))
        last = min(kills, done + per_campaign)
        while not run.finished:
            starts += 1
            launcher = by_mpirun if starts % every == 0 else by_fork
            # Two programs load TensorFlow, where two forks have it.
            window = first * (3 if launcher is by_mpirun else 1) + AHEAD * epoch
            done, aimed = total(tally, *COLUMNS[:2]), total(tally, COLUMNS[1])
            kill(launcher, run, None if done >= last else aimed <= done / 2, window, tally)
            print(f"{total(tally, *COLUMNS[:2])} kills", end="\r", file=sys.stderr)
        mine, expected = run.outcome(), calm.outcome()
        if differ := [name for name in expected if mine.get(name) != expected[name]]:
            raise BreachError(f"{run.options.name} ended with other values: {len(differ)}, such as {differ[0]}")
        campaigns += 1
        shutil.rmtree(run.folder)
        shutil.rmtree(calm.folder)
    return tally, campaigns


def main() -> int:
    """Drill as the command line says."""
    parser = argparse.ArgumentParser("python -m tests.drill", description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1, help="of the data and the kills; moments depend on the machine")
    parser.add_argument("--per-campaign", type=int, default=20, help="kills of one campaign")
    parser.add_argument("--every", type=int, default=10, help="which of the starts are by mpirun")
    args = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="drill-"))
    # What Open MPI keeps while it runs, and a killed one leaves, lies there too.
    os.environ |= {"TMPDIR": str(root), "OMPI_MCA_btl_sm_backing_directory": str(root)}
    gc.freeze()  # A collection in a fork would copy all of this process's memory.
    LIBC.prctl(SET_CHILD_SUBREAPER, 1)  # Whatever a start leaves behind becomes a child of this process.
    try:
        tally, campaigns = drill(args.kills, args.seed, root, args.per_campaign, args.every)
    except BreachError as problem:
        print(f"drill: error: {problem}; see {root}", file=sys.stderr)
        return 1
    finally:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                process.kill()
    print(f"| killed | {' | '.join(COLUMNS)} |\n|---|---:|---:|---:|")
    for target in sorted({target for target, _ in tally}):
        print(f"| {target} | {' | '.join(str(tally[target, column]) for column in COLUMNS)} |")
    print(f"| together | {' | '.join(str(total(tally, column)) for column in COLUMNS)} |\n\n"
          f"{campaigns} of {campaigns} campaigns ended like the undisturbed run, bit for bit.")
    shutil.rmtree(root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
