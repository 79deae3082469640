"""A drill: kill a training at random moments, resume it after each kill, and check what the kit promises.

    python -m tests.drill --kills 400        (make drill)

A campaign is one training of two workers (training.py), started as `labs run` does. It is killed some 20 times and
resumed after each kill, and must end like an undisturbed run: weights, optimizer state and history, bit for bit. A kill
is a SIGKILL to a worker, to mpirun or to the process that started them: half of them at any moment, half while a
checkpoint is being written. A kill has landed in a save if it left the half-written file behind.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import psutil

from labs.run import command_line, heartbeat
from labs.run.paths import ROOT
from labs.training import checkpoint
from tests.drill import training

LAUNCHER = "import sys; from labs.launch import local; from tests.drill import training; " \
    "local.run(training, sys.argv[1:], workers=2, oversubscribe=True)"
TARGETS = ("rank 0", "rank 1", "mpirun", "labs")
COLUMNS = ("at any moment", "aimed into a save", "landed inside a save")
CLOCKS = ("train_seconds", "val_seconds")
SECONDS_TO_HANG, SECONDS_TO_END = 120.0, 30.0
AHEAD = 4
"""Epochs that a start may save before it is killed, so that a campaign lasts for many kills."""
SECONDS_OF_A_SAVE = 0.03


class BreachError(Exception):
    """A promise that was not kept."""


class Run:
    """A run that is started again until it finishes, and what is known of it."""

    def __init__(self, root: Path, name: str, config: training.Config, save_seconds: float = 600.0):
        self.root, self.folder, self.log = root, root / training.LAB.name / name, root / f"{name}.log"
        self.words = [*command_line.to_argv(config), "--name", name, "--resume", "--save-seconds", str(save_seconds)]
        self.reported, self.reached = 0, 0.0
        """Epochs that were reported as finished, and epochs up to the last step."""

    def start(self) -> subprocess.Popen:
        with open(self.log, "w") as log:
            return subprocess.Popen([sys.executable, "-c", LAUNCHER, *self.words], cwd=ROOT, stdout=log, stderr=log,
                                    start_new_session=True, env=os.environ | {"LABS_RESULTS": str(self.root)})

    @property
    def finished(self) -> bool:
        return (self.folder / "record.json").exists()

    def torn(self) -> set[str]:
        """Return the files that are being written."""
        return {path.name for path in self.folder.glob("checkpoints/.*.part")}

    def saved(self) -> list[Path]:
        return checkpoint.by_age(self.folder / "checkpoints")

    def epochs_saved(self) -> int:
        return max([int(path.stem.split("-")[1]) for path in self.saved()], default=0)

    def outcome(self) -> dict[str, object]:
        """Return what no kill may change: the arrays of the last checkpoint, and the history without clocks."""
        history = json.loads((self.folder / "record.json").read_text())["history"]
        rows = [{name: value for name, value in row.items() if name not in CLOCKS} for row in history]
        return {"history": rows} | {name: (array.dtype.str, array.shape, array.tobytes())
                                    for name, array in load(self.saved()[-1]).items() if name != "meta"}

    def close(self, launcher: subprocess.Popen, torn: set[str], resumes: bool) -> int:
        """Wait for the end of a start, check what is left and what it said, and return its exit code."""
        try:
            code = launcher.wait(SECONDS_TO_HANG)
        except subprocess.TimeoutExpired:
            raise BreachError("the run hangs") from None
        deadline = time.monotonic() + SECONDS_TO_END
        while left := self.processes():
            if time.monotonic() > deadline:
                raise BreachError(f"left behind: {left}")
        output = self.log.read_text(errors="replace")
        if resumes and ("nothing to resume" in output or "is damaged" in output):
            raise BreachError("there was a checkpoint, and it was not used")
        if f"{training.LAB.name}: 2 workers" in output and self.torn() & torn:
            raise BreachError("what a killed writer left stays forever")
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
        for beat in heartbeat.read_folder(self.folder / heartbeat.FOLDER):
            self.reached = max(self.reached, beat.epoch - 1 + beat.step / training.STEPS)
        return code

    def processes(self) -> list[psutil.Process]:
        """Return all processes of the drill, also those that have lost their parents."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("LABS_RESULTS") == str(self.root):
                    found.append(process)
        return found


def load(path: Path) -> dict[str, np.ndarray]:
    """Read a checkpoint to its last byte; every array in it has a CRC."""
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def ends(launcher: subprocess.Popen, seconds: float) -> bool:
    """Wait up to `seconds` for the launcher to end, and return whether it has ended."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        launcher.wait(seconds)
    return launcher.returncode is not None


def find(launcher: subprocess.Popen, target: str) -> int:
    """Return the pid of a target; 0 if there is none yet."""
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(launcher.pid).children(recursive=True):
            rank = process.environ().get("OMPI_COMM_WORLD_RANK")
            if target == f"rank {rank}" or (target == "mpirun" and process.name() == "prterun"):
                return process.pid
    return launcher.pid if target == "labs" else 0


def aim(run: Run, launcher: subprocess.Popen, target: str, in_a_save: bool, start: float, epoch: float) -> int:
    """Wait for the moment of a kill, and return the pid to kill; 0 if the launcher has already ended.

    Args:
        start: Seconds from the start of a run to its first checkpoint.
        epoch: Seconds from one checkpoint to the next.
    """
    if not in_a_save:
        more = random.randrange(AHEAD)
        goal = run.epochs_saved() + more
        while run.epochs_saved() < goal:
            if ends(launcher, 0.002):
                return 0
        moment = random.uniform(0, epoch if more else start)
        return 0 if ends(launcher, moment) else find(launcher, target) or launcher.pid
    while not (victim := find(launcher, target)):  # Now: a checkpoint is written in less time than a search takes.
        if ends(launcher, 0.02):
            return 0
    before = run.torn()
    while not run.torn() - before:
        if ends(launcher, 0.001):
            return 0
    return 0 if ends(launcher, random.uniform(0, SECONDS_OF_A_SAVE)) else victim


def kill(run: Run, in_a_save: bool | None, start: float, epoch: float, tally: Counter) -> None:
    """Start the run once more, kill a part of it (unless `in_a_save` is None), and check what is left."""
    torn, resumes, launcher = run.torn(), bool(run.saved()), run.start()
    target = random.choice([*TARGETS, *["rank 0"] * 2 * bool(in_a_save)])  # Rank 0 is the one that writes.
    victim = 0 if in_a_save is None else aim(run, launcher, target, in_a_save, start, epoch)
    if victim:
        with contextlib.suppress(ProcessLookupError):  # It has done its work.
            os.kill(victim, signal.SIGKILL)
    code = run.close(launcher, torn, resumes)
    if code and not victim:
        raise BreachError(f"a start that was not disturbed failed with code {code}: {run.log.read_text()[-2000:]}")
    if code:
        target = "labs" if victim == launcher.pid else target
        tally[target, "aimed into a save" if in_a_save else "at any moment"] += 1
        tally[target, "landed inside a save"] += bool(run.torn() - torn)


def total(tally: Counter, *columns: str) -> int:
    return sum(count for (_, column), count in tally.items() if column in columns)


def drill(kills: int, seed: int, root: Path, per_campaign: int) -> tuple[Counter, int]:
    """Run campaigns until the given number of kills, and return their tally and the number of campaigns."""
    random.seed(seed)
    tally: Counter = Counter()
    campaigns = 0
    while (done := total(tally, *COLUMNS[:2])) < kills:
        config = training.Config(seed=1000 * seed + campaigns)
        calm = Run(root, f"seed{config.seed}-undisturbed", config)
        began, launcher = time.perf_counter(), calm.start()
        while not calm.saved() and not ends(launcher, 0.01):
            pass
        start = time.perf_counter() - began
        if calm.close(launcher, set(), False):
            raise BreachError(f"an undisturbed run failed: {calm.log.read_text()}")
        epoch = (time.perf_counter() - began - start) / config.epochs
        # Every second campaign saves between its steps as well, every third of a second.
        run = Run(root, f"seed{config.seed}", config, 0.3 if campaigns % 2 else 600.0)
        last = min(kills, done + per_campaign)
        while not run.finished:
            done, aimed = total(tally, *COLUMNS[:2]), total(tally, COLUMNS[1])
            kill(run, None if done >= last else aimed <= done / 2, start, epoch, tally)
        mine, expected = run.outcome(), calm.outcome()
        if differ := [name for name in expected if mine.get(name) != expected[name]]:
            raise BreachError(f"{run.folder.name} ended with other values: {len(differ)}, such as {differ[0]}")
        campaigns += 1
        shutil.rmtree(run.folder)
        shutil.rmtree(calm.folder)
        print(f"{total(tally, *COLUMNS[:2])} kills, {campaigns} campaigns", file=sys.stderr)
    return tally, campaigns


def main() -> int:
    """Drill as the command line says."""
    parser = argparse.ArgumentParser("python -m tests.drill", description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1, help="of the data and the kills; moments depend on the machine")
    parser.add_argument("--per-campaign", type=int, default=20, help="kills of one campaign")
    args = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="drill-"))
    # What Open MPI keeps while it runs, and a killed one leaves, lies there too.
    os.environ |= {"TMPDIR": str(root), "OMPI_MCA_btl_sm_backing_directory": str(root)}
    try:
        tally, campaigns = drill(args.kills, args.seed, root, args.per_campaign)
    except BreachError as problem:
        print(f"drill: error: {problem}; see {root}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        shutil.rmtree(root, ignore_errors=True)
        return 130
    finally:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                process.kill()
    print(f"| killed | {' | '.join(COLUMNS)} |\n|---|---:|---:|---:|")
    for target in TARGETS:
        print(f"| {target} | {' | '.join(str(tally[target, column]) for column in COLUMNS)} |")
    print(f"| together | {' | '.join(str(total(tally, column)) for column in COLUMNS)} |\n\n"
          f"{campaigns} of {campaigns} campaigns ended like the undisturbed run, bit for bit.")
    shutil.rmtree(root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
