"""Kills a training again and again at random moments, and holds it to what the kit promises.

    python -m tests.drill --kills 1000 --keep FILE        (make drill)

A campaign is one training of two workers (training.py). It is shot some 20 times, resumed after each shot, and
then left to come to its end, which must be that of an undisturbed run: weights, optimizer and history, bit for bit. A
shot is SIGKILL to a worker or to a launcher: half of them at any moment of the run's life, half aimed into the writing
of a checkpoint. What a shot has hit shows in what it leaves: the file that was being written.

Loading TensorFlow takes far longer than this training. So most starts are forks of this process, which has loaded it
and has not used it: a launcher in place of horovodrun, with two workers over Gloo. Every tenth is `labs run`'s: mpirun,
and separate programs. Both come to the same bits.

A thousand take an hour or more: with --keep the tally is written after each campaign, and the same command goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import matplotlib.figure  # noqa: F401 - loaded once, before the forks.
from tqdm import tqdm

from tests.drill import training
from tests.drill.launchers import LIBC, by_fork, by_mpirun
from tests.drill.runs import BreachError, Run, below
from tests.drill.shots import Tally, compare, plan_shot, shoot, undisturbed

SET_CHILD_SUBREAPER = 36  # prctl.h


def drill(kills: int, seed: int, results_root: Path, shots: int, every: int, keep: Path | None = None) -> Tally:
    """Run campaigns until the given number of shots have killed.

    Args:
        kills: How many.
        seed: Of the plan; the moments of the shots also depend on the machine.
        store: An empty folder.
        shots: Kills of one campaign.
        every: Which of the starts are `labs run`'s.
        keep: Where the tally is kept.

    Raises:
        BreachError: A promise was not kept.
    """
    gc.freeze()  # A collection in a fork would copy all of this process's memory.
    with contextlib.suppress(PermissionError):  # On a busy machine a shot that waits for its turn comes after the save.
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    LIBC.prctl(SET_CHILD_SUBREAPER, 1)  # Whatever a start leaves behind becomes a child of this process.
    tally = Tally.read(keep) if keep else Tally()
    tqdm.monitor_interval = 0  # No thread: this process forks.
    with tqdm(total=kills, initial=tally.shots, desc="kills", unit="", mininterval=1, file=sys.stderr) as bar:
        while tally.shots < kills:
            rng, began = random.Random(f"{seed} {tally.campaigns}"), time.perf_counter()
            config = training.Config(seed=1000 * seed + tally.campaigns)
            calm = Run(results_root, f"seed{config.seed}-undisturbed", config)
            pace = undisturbed(calm)
            # Two programs load TensorFlow, where two forks have it.
            paces = {by_fork: pace, by_mpirun: dataclasses.replace(pace, start=3 * pace.start)}
            # Every second campaign saves between its steps as well, every third of a second.
            between = {"save_seconds": 0.3} if tally.campaigns % 2 else {}
            run, last = Run(results_root, f"seed{config.seed}", config, **between), min(kills, tally.shots + shots)
            while not run.finished:
                launcher = by_fork if (tally.starts.total() + 1) % every else by_mpirun
                shot = plan_shot(rng, launcher, tally.aimed <= tally.shots / 2) if tally.shots < last else None
                shoot(launcher, run, shot, paces[launcher], tally)
                bar.set_postfix_str(f"{tally.landed.total()} inside a save", refresh=False)
                bar.update(tally.shots - bar.n)
            compare(run, calm)
            tally.campaigns += 1
            tally.seconds += time.perf_counter() - began
            if keep:
                tally.write(keep)
            calm.close()
            run.close()
    return tally


def table(tally: Tally) -> str:
    """Return what has happened, as a page of Markdown has it."""
    targets = sorted({target for target, _ in tally.kills}, key=["rank 0", "rank 1", "launcher", "mpirun"].index)
    rows = [(target, tally.kills[target, False], tally.kills[target, True], tally.landed[target]) for target in targets]
    rows.append(("together", *(sum(column) for column in list(zip(*rows, strict=True))[1:])))
    head = ("killed", "at any moment", "aimed into a save", "landed inside a save")
    lines = [head, ["---"] + ["---:"] * 3, *rows]
    return "\n".join([
        *(f"| {' | '.join(map(str, line))} |" for line in lines), "",
        f"{tally.shots} kills in {tally.campaigns} campaigns and {tally.starts.total()} starts "
        f"({tally.starts['by_mpirun']} of them by mpirun), {tally.seconds:.0f} s.",
        f"{tally.resumes} starts found a checkpoint: {tally.loaded} loaded it, the others were shot first.",
        f"Lost at most: {tally.lost:.2f} epochs, of which each ends with a checkpoint.",
        f"{tally.campaigns} of {tally.campaigns} campaigns ended at the weights, the optimizer's state and the history "
        "of the undisturbed run, bit for bit.",
    ])


def main() -> int:
    """Drill as the command line says."""
    parser = argparse.ArgumentParser("python -m tests.drill", description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1, help="of the plan of the shots")
    parser.add_argument("--shots", type=int, default=20, help="kills of one campaign")
    parser.add_argument("--every", type=int, default=10, help="which of the starts are by mpirun")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="keep the tally there, and go on from it")
    args = parser.parse_args()
    results_root = Path(tempfile.mkdtemp(prefix="drill-"))
    # What Open MPI keeps while it runs, and a killed one leaves, lies there too.
    os.environ |= {"TMPDIR": str(results_root), "OMPI_MCA_btl_sm_backing_directory": str(results_root)}
    try:
        tally = drill(args.kills, args.seed, results_root, args.shots, args.every, args.keep)
    except BreachError as problem:
        print(f"drill: error: {problem}; see {results_root}, and again with --seed {args.seed}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        shutil.rmtree(results_root, ignore_errors=True)
        return 130
    finally:
        for pid in below(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    print(table(tally))
    shutil.rmtree(results_root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
