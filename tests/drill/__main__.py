"""A drill: kill a training at random moments, resume it after each kill, and check what the kit promises.

    python -m tests.drill --kills 400        (make drill)

A campaign is one training of two workers (training.py), started as `labs run` does. It is killed some 20 times and
resumed after each kill, and must end like an undisturbed run: weights, optimizer state and history, bit for bit. A kill
is a SIGKILL to a worker, to mpirun or to the process that started them: half of them at any moment, half as soon as a
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

from labs.run import command_line
from labs.run.paths import ROOT
from labs.training import checkpoint
from tests.drill import training

LAUNCHER = "import sys; from labs.launch import local; from tests.drill import training; " \
    "local.run(training, sys.argv[1:], workers=2, oversubscribe=True)"
TARGETS = ("rank 0", "rank 1", "mpirun", "labs")
COLUMNS = ("at any moment", "aimed into a save", "landed inside a save")
CLOCKS = ("train_seconds", "val_seconds")
SECONDS_TO_HANG, SECONDS_TO_END, SECONDS_OF_A_SAVE = 120.0, 30.0, 0.03


class BreachError(Exception):
    """A promise that was not kept."""


class Run:
    """A run that is started again until it finishes, and the epochs that it has reported as finished."""

    def __init__(self, root: Path, name: str, config: training.Config, save_seconds: float = 600.0):
        self.root, self.folder, self.log = root, root / training.LAB.name / name, root / f"{name}.log"
        self.words = [*command_line.to_argv(config), "--name", name, "--resume", "--save-seconds", str(save_seconds)]
        self.reported = 0

    def start(self) -> subprocess.Popen:
        with open(self.log, "w") as log:
            return subprocess.Popen([sys.executable, "-c", LAUNCHER, *self.words], cwd=ROOT, stdout=log, stderr=log,
                                    start_new_session=True, env=os.environ | {"LABS_RESULTS": str(self.root)})

    def half_written(self) -> set[str]:
        return {path.name for path in self.folder.glob("checkpoints/.*.part")}

    def saved(self) -> list[Path]:
        return checkpoint.by_age(self.folder / "checkpoints")

    def outcome(self) -> dict[str, object]:
        """Return what no kill may change: the arrays of the last checkpoint, and the history without clocks."""
        history = json.loads((self.folder / "record.json").read_text())["history"]
        rows = [{name: value for name, value in row.items() if name not in CLOCKS} for row in history]
        return {"history": rows} | {name: (array.dtype.str, array.shape, array.tobytes())
                                    for name, array in load(self.saved()[-1]).items() if name != "meta"}

    def close(self, launcher: subprocess.Popen, before: set[str], resumes: bool) -> int:
        """Wait for the end of a start, check what is left and what it said, and return its exit code."""
        if not ends(launcher, SECONDS_TO_HANG):
            raise BreachError("the run hangs")
        deadline = time.monotonic() + SECONDS_TO_END
        while left := self.processes():
            if time.monotonic() > deadline:
                raise BreachError(f"left behind: {left}")
        output = self.log.read_text(errors="replace")
        if resumes and ("nothing to resume" in output or "is damaged" in output):
            raise BreachError("there was a checkpoint, and it was not used")
        if f"{training.LAB.name}: 2 workers" in output and self.half_written() & before:
            raise BreachError("what a killed writer left stays forever")
        resumed = re.search(r"^resumed after epoch (\d+)", output, re.MULTILINE)
        if resumed and int(resumed[1]) < self.reported:
            raise BreachError(f"{self.reported} epochs were reported, and it {resumed[0]}")
        for path in self.saved():
            try:
                load(path)
            except Exception as problem:
                raise BreachError(f"{path.name} does not load: {problem}") from None
        self.reported = max([self.reported, *map(int, re.findall(r"^epoch (\d+)/", output, re.MULTILINE))])
        return launcher.returncode

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


def kill(run: Run, seconds: float, tally: Counter) -> None:
    """Start the run once more, kill a part of it within some seconds, and check what is left; 0 seconds: do not."""
    before, resumes, launcher = run.half_written(), bool(run.saved()), run.start()
    aimed, victim, target = random.random() < 0.5, 0, random.choice(TARGETS)
    if seconds and not ends(launcher, 0 if aimed else random.uniform(0, seconds)):
        while not (victim := find(launcher, target)) and not ends(launcher, 0.02):
            pass
        while aimed and not run.half_written() - before and not ends(launcher, 0.001):
            pass
        if not ends(launcher, aimed * random.uniform(0, SECONDS_OF_A_SAVE)):
            with contextlib.suppress(ProcessLookupError):  # It has done its work.
                os.kill(victim, signal.SIGKILL)
    code = run.close(launcher, before, resumes)
    if code and not victim:
        raise BreachError(f"a start that was not disturbed failed with code {code}: {run.log.read_text()[-2000:]}")
    if code:
        tally[target, COLUMNS[aimed]] += 1
        tally[target, COLUMNS[2]] += bool(run.half_written() - before)


def count_kills(tally: Counter) -> int:
    return sum(count for (_, column), count in tally.items() if column != COLUMNS[2])


def drill(kills: int, seed: int, root: Path, per_campaign: int) -> tuple[Counter, int]:
    """Run campaigns until the given number of kills, and return their tally and the number of campaigns."""
    random.seed(seed)
    tally: Counter = Counter()
    campaigns = 0
    while (done := count_kills(tally)) < kills:
        config = training.Config(seed=1000 * seed + campaigns)
        calm = Run(root, f"seed{config.seed}-undisturbed", config)
        began = time.perf_counter()
        kill(calm, 0, tally)
        seconds = time.perf_counter() - began
        # Every second campaign saves between its steps as well, every third of a second.
        run = Run(root, f"seed{config.seed}", config, 0.3 if campaigns % 2 else 600.0)
        last = min(kills, done + per_campaign)
        while not (run.folder / "record.json").exists():
            kill(run, seconds * (count_kills(tally) < last), tally)
        mine, expected = run.outcome(), calm.outcome()
        if differ := [name for name in expected if mine.get(name) != expected[name]]:
            raise BreachError(f"{run.folder.name} ended with other values: {len(differ)}, such as {differ[0]}")
        campaigns += 1
        shutil.rmtree(run.folder)
        shutil.rmtree(calm.folder)
        print(f"{count_kills(tally)} kills, {campaigns} campaigns", file=sys.stderr)
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
    finally:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                process.kill()
    print(f"| killed | {' | '.join(COLUMNS)} |\n|---|---:|---:|---:|")
    for target in TARGETS:
        print(f"| {target} | {' | '.join(str(tally[target, column]) for column in COLUMNS)} |")
    together = [sum(tally[target, column] for target in TARGETS) for column in COLUMNS]
    print(f"| together | {' | '.join(map(str, together))} |\n\n"
          f"{campaigns} of {campaigns} campaigns ended like the undisturbed run, bit for bit.")
    shutil.rmtree(root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
