"""A drill: kill a training at random moments, resume it after each kill, and check what the kit promises.

    python -m tests.drill --kills 400        (make drill)

A campaign is one training of two workers (lab 2: dropout, and a checkpoint of 14 MB, which takes a while to be
written). It is killed some 20 times and resumed after each kill, and must end like an undisturbed run: weights,
optimizer state and history, bit for bit. A kill is a SIGKILL to a worker, to mpirun or to `labs`: half of them at any
moment, half as soon as a checkpoint is being written. A kill has landed in a save if it left the half-written file.
"""

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

from labs import lab02_horovod as lab
from labs.run import command_line
from labs.run.paths import ROOT
from labs.training import checkpoint

TARGETS = ("rank 0", "rank 1", "mpirun", "labs")
COLUMNS = ("at any moment", "aimed into a save", "landed inside a save")
CLOCKS = ("train_seconds", "val_seconds")
SECONDS_TO_HANG, SECONDS_TO_END, SECONDS_OF_A_SAVE = 120.0, 30.0, 0.03


class BreachError(Exception):
    """A promise that was not kept."""


class Run:
    """A run that is started again until it finishes, and the epochs that it has reported as finished."""

    def __init__(self, root: Path, name: str, seed: int, save_seconds: float = 600.0):
        self.root, self.folder, self.log = root, root / lab.LAB.name / name, root / f"{name}.log"
        config = lab.Config(images=180, batch_size=16, epochs=16, threads=1, seed=seed)
        self.words = [lab.LAB.name, "--workers", "2", "--oversubscribe", *command_line.to_argv(config), "--name", name,
                      "--resume", "--save-seconds", str(save_seconds)]
        self.reported = 0

    def start(self) -> subprocess.Popen:
        env = os.environ | {"LABS_RESULTS": str(self.root)}
        with open(self.log, "w") as log:
            return subprocess.Popen([sys.executable, "-m", "labs", "run", *self.words], cwd=ROOT, stdout=log,
                                    stderr=log, start_new_session=True, env=env)

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

    def check(self, launcher: subprocess.Popen, before: set[str], resumes: bool) -> None:
        """Wait for the end of a start, and check what is left and what it said."""
        require(ends(launcher, SECONDS_TO_HANG), "the run hangs")
        deadline = time.monotonic() + SECONDS_TO_END
        while left := self.processes():
            require(time.monotonic() < deadline, f"left behind: {left}")
        output = self.log.read_text(errors="replace")
        require(not resumes or not re.search("has saved nothing|is damaged", output), "a checkpoint was not used")
        require(f"{lab.LAB.name}: 2 workers" not in output or not self.half_written() & before,
                "what a killed writer left stays forever")
        resumed = re.search(r"^resumed after epoch (\d+)", output, re.MULTILINE)
        require(not resumed or int(resumed[1]) >= self.reported, f"{self.reported} epochs were reported: {resumed}")
        for path in self.saved():
            load(path)
        self.reported = max([self.reported, *map(int, re.findall(r"^epoch (\d+)/", output, re.MULTILINE))])

    def processes(self) -> list[psutil.Process]:
        """Return all processes of the drill, also those that have lost their parents."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("LABS_RESULTS") == str(self.root):
                    found.append(process)
        return found


def require(kept: bool, breach: str) -> None:
    if not kept:
        raise BreachError(breach)


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
    run.check(launcher, before, resumes)
    require(not launcher.returncode or bool(victim), f"an undisturbed start failed: {run.log.read_text()[-2000:]}")
    if launcher.returncode:
        tally[COLUMNS[aimed]] += 1
        tally[COLUMNS[2]] += bool(run.half_written() - before)


def drill(kills: int, seed: int, root: Path, per_campaign: int) -> tuple[Counter, int]:
    """Run campaigns until the given number of kills, and return their tally and the number of campaigns."""
    random.seed(seed)
    tally: Counter = Counter()
    campaigns = 0
    while (done := tally[COLUMNS[0]] + tally[COLUMNS[1]]) < kills:
        number = 1000 * seed + campaigns
        calm = Run(root, f"seed{number}-undisturbed", number)
        began = time.perf_counter()
        kill(calm, 0, tally)
        seconds = time.perf_counter() - began
        # Every second campaign saves between its steps as well, every third of a second.
        run = Run(root, f"seed{number}", number, 0.3 if campaigns % 2 else 600.0)
        last = min(kills, done + per_campaign)
        while not (run.folder / "record.json").exists():
            kill(run, seconds * (tally[COLUMNS[0]] + tally[COLUMNS[1]] < last), tally)
        mine, expected = run.outcome(), calm.outcome()
        differ = [name for name in expected if mine.get(name) != expected[name]]
        require(not differ, f"{run.folder.name} ended with other values: {differ}")
        campaigns += 1
        for each in (run, calm):
            shutil.rmtree(each.folder)
    return tally, campaigns


def main() -> None:
    """Drill as the command line says; after a breach, the runs stay."""
    parser = argparse.ArgumentParser("python -m tests.drill", description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1, help="of the data and the kills; moments depend on the machine")
    parser.add_argument("--per-campaign", type=int, default=20, help="kills of one campaign")
    args = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="drill-"))
    # What Open MPI keeps while it runs, and a killed one leaves, lies there too.
    os.environ |= {"TMPDIR": str(root), "OMPI_MCA_btl_sm_backing_directory": str(root)}
    tally, campaigns = drill(args.kills, args.seed, root, args.per_campaign)
    shutil.rmtree(root)
    counts = " | ".join(str(tally[each]) for each in COLUMNS)
    print(f"| killed {' | '.join(COLUMNS)} |\n|---:|---:|---:|\n| {counts} |\n"
          f"\n{campaigns} of {campaigns} campaigns ended like the undisturbed run, bit for bit.")


if __name__ == "__main__":
    main()
