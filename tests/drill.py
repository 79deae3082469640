"""Kills a training again and again at random moments, and holds it to what the kit promises.

    python -m tests.drill --kills 1000        (make drill)

A campaign is one training of two workers (tests/drilled.py). It is shot some 20 times, resumed after each shot, and
then left to come to its end, which must be that of an undisturbed run: weights, optimizer and history, bit for bit. A
shot is SIGKILL to a worker or to a launcher: half of them at any moment of the run's life, half aimed into the writing
of a checkpoint. What has hit is told by what it leaves: the file that was being written.

Loading TensorFlow takes far longer than this training. So most starts are forks of this process, which has loaded it
and has not used it: a launcher in place of horovodrun, with two workers over Gloo. Every tenth is `labs run`'s: mpirun,
and programs of their own. Both come to the same bits.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import json
import os
import random
import re
import select
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib.figure  # noqa: F401 - loaded once, before the forks.
import numpy as np
from tqdm import tqdm

from labs import command
from labs.command import Options
from labs.errors import LabError
from labs.launch import local
from labs.training import gloo, watch
from tests import drilled

SIZE = 2
LIBC = ctypes.CDLL(None, use_errno=True)
SET_PARENT_DEATH_SIGNAL, SET_NAME, SET_CHILD_SUBREAPER = 1, 15, 36  # prctl.h
CLOCKS = ("train_seconds", "val_seconds")
AHEAD = 6
"""Epochs that a start may get through before it is shot: a campaign is to last for some twenty shots."""
SECONDS_TO_HANG, SECONDS_TO_END = 120.0, 30.0


class BreachError(Exception):
    """A promise that was not kept."""


# --- Two launchers. Each is called in a process of its own, and ends when its workers have.


def by_fork(config: drilled.Config, options: Options) -> None:
    """Start the workers over Gloo as copies of this process; when one is lost, or this process, all end."""
    server = gloo._server(nodes_apart=False)
    launcher = os.getpid()
    workers = [fork(lambda rank=rank: _work(rank, launcher, server.server_address, config, options))
               for rank in range(SIZE)]
    for _ in workers:
        _, status = os.wait()
        if status:
            for worker in workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
            raise SystemExit(1)


def _work(rank: int, launcher: int, server: tuple[str, int], config: drilled.Config, options: Options) -> None:
    """Be one worker."""
    LIBC.prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    LIBC.prctl(SET_NAME, b"rank %d" % rank)
    if os.getppid() != launcher:  # It was killed before the line above.
        return
    # Horovod: what horovodrun tells a worker; mpirun's find it out by themselves.
    os.environ |= gloo._places(rank, [socket.gethostname()] * SIZE, *server)
    os.environ |= {"HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo"}
    try:
        drilled.run(config, options)
    except BaseException as problem:
        command._leave(problem)
    import horovod.tensorflow as hvd

    hvd.shutdown()  # Horovod: an exit in which the workers wait for each other; a fork has none of its own.


def by_mpirun(config: drilled.Config, options: Options) -> None:
    """Start the workers as `labs run` does."""
    words = [*command.spell(drilled, config), "--name", options.name, "--results", str(options.results), "--resume",
             "--save-seconds", str(options.save_seconds)]
    try:
        local.run(drilled, words, workers=SIZE, oversubscribe=True)
    except LabError as problem:
        print(f"labs: error: {problem}")
        raise SystemExit(1) from None


def fork(body: Callable[[], None]) -> int:
    """Call `body` in a copy of this process, and return its pid."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        body()
        code = 0
    except SystemExit:
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


# --- A run, and one start of it.


class Saves:
    """Hears when a checkpoint begins to be written and when it is there (inotify: no waiting loop takes a core).

    Args:
        folder: Of the checkpoints.
    """

    CREATE, MOVED_TO = 0x100, 0x80  # inotify.h

    def __init__(self, folder: Path):
        self.file = LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if LIBC.inotify_add_watch(self.file, os.fsencode(folder), self.CREATE | self.MOVED_TO) < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(folder))

    def fileno(self) -> int:
        return self.file

    def read(self) -> list[str]:
        """Return "begun" and "done", in their order, since the last call."""
        try:
            told, heard, place = os.read(self.file, 1 << 16), [], 0
        except BlockingIOError:
            return []
        while place < len(told):
            _, mask, _, length = struct.unpack_from("iIII", told, place)
            name = told[place + 16 : place + 16 + length]
            if b".npz" in name:
                heard.append("begun" if mask & self.CREATE else "done")
            place += 16 + length
        return heard


class Run:
    """One run that is started until it comes to its end, and what is known of it.

    Args:
        store: The results store.
        name: Of the run.
        config: Of the run.
        save_seconds: See Options.
    """

    def __init__(self, store: Path, name: str, config: drilled.Config, save_seconds: float = Options.save_seconds):
        self.config, self.options = config, Options(name, store, resume=True, save_seconds=save_seconds)
        self.folder = store / drilled.LAB / name
        self.checkpoints = self.folder / "checkpoints"
        self.checkpoints.mkdir(parents=True)
        self.saves = Saves(self.checkpoints)
        self.starts = 0
        self.reported = 0
        """Epochs that were said to be finished."""
        self.reached = 0.0
        """Epochs up to the last step that was noted."""

    @property
    def finished(self) -> bool:
        return (self.folder / "record.json").exists()

    def torn(self) -> set[str]:
        """Return the files that were being written."""
        return {path.name for path in self.checkpoints.glob(".*.part")}

    def saved(self) -> list[Path]:
        return sorted(self.checkpoints.glob("epoch-*.npz"), key=lambda path: path.stem)

    def outcome(self) -> dict[str, object]:
        """Return what must not hang on the shots: the arrays of the last checkpoint, and the history without clocks."""
        history = json.loads((self.folder / "record.json").read_text())["history"]
        rows = [{name: value for name, value in row.items() if name not in CLOCKS} for row in history]
        arrays = {name: (array.dtype.str, array.shape, array.tobytes())
                  for name, array in load(self.saved()[-1]).items() if name != "meta"}
        return {"history": rows, "variables": len(arrays)} | arrays

    def close(self) -> None:
        """Forget the run."""
        os.close(self.saves.file)
        shutil.rmtree(self.folder)


def load(path: Path) -> dict[str, np.ndarray]:
    """Read a checkpoint to its last byte; every array in it has a CRC."""
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


class Start:
    """One start of a run: a launcher, and below it the workers.

    Args:
        launcher: `by_fork` or `by_mpirun`.
        run: What is started.
    """

    def __init__(self, launcher: Callable, run: Run):
        self.run, self.log = run, run.folder / f"start-{run.starts:04d}.log"
        run.starts += 1
        run.saves.read()
        self.began = time.perf_counter()
        self.pid = fork(lambda: self._launch(launcher))
        self.end = os.pidfd_open(self.pid)

    def _launch(self, launcher: Callable) -> None:
        os.setsid()
        with open(self.log, "wb") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        launcher(self.run.config, self.run.options)

    def ends(self, seconds: float) -> bool:
        """Wait for the end so long, and return whether it has come."""
        return bool(select.select([self.end], [], [], seconds)[0])

    def hear(self) -> list[str]:
        """Wait until a checkpoint begins or is done, and return which; an empty list at the end of the start.

        Raises:
            BreachError: Nothing happens.
        """
        while True:
            ready = select.select([self.end, self.run.saves], [], [], SECONDS_TO_HANG)[0]
            if not ready:
                raise BreachError("the run hangs")
            if heard := self.run.saves.read():
                return heard
            if self.end in ready:
                return []

    def find(self, target: str) -> int:
        """Return the pid of a target; 0 if there is none yet."""
        if target == "launcher":
            return self.pid
        names = ("mpirun", "prterun") if target == "mpirun" else (target,)
        return next((pid for pid in below(self.pid) if called(pid) in names), 0)

    def close(self) -> int:
        """Wait until no process of the start is left, and return the launcher's exit code.

        Raises:
            BreachError: A process is left.
        """
        if not self.ends(SECONDS_TO_END):
            raise BreachError("the launcher does not end")
        os.close(self.end)
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        deadline = time.monotonic() + SECONDS_TO_END
        with contextlib.suppress(ChildProcessError):  # There is none.
            while True:
                if not os.waitpid(-1, os.WNOHANG)[0]:
                    if time.monotonic() > deadline:
                        raise BreachError(f"left behind: {[called(pid) for pid in below(os.getpid())]}")
                    time.sleep(0.005)
        return code


def below(pid: int) -> list[int]:
    """Return the processes that a process has started, and those that they have started."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # It has ended.
            for child in map(int, path.read_text().split()):
                found += [child, *below(child)]
    return found


def called(pid: int) -> str:
    """Return what a process is: a rank, or the name of its program."""
    with contextlib.suppress(OSError):
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        rank = [entry.split(b"=")[1].decode() for entry in environment if entry.startswith(b"OMPI_COMM_WORLD_RANK=")]
        return f"rank {rank[0]}" if rank else Path(f"/proc/{pid}/comm").read_text().strip()
    return "gone"


# --- Shots.


@dataclass(frozen=True)
class Shot:
    """One shot, as it is planned."""

    target: str
    aimed: bool
    """Into the writing of the next checkpoint; else at any moment, from the launcher's first one on."""
    share: float
    """Of the time that a checkpoint takes, or of the window: when to shoot."""


def draw(luck: random.Random, launcher: Callable, aimed: bool) -> Shot:
    """Plan a shot."""
    targets = ["rank 0", "rank 1", "launcher", *(["mpirun"] if launcher is by_mpirun else [])]
    if aimed:
        targets.append("rank 0")  # It is the one that writes.
    return Shot(luck.choice(targets), aimed, luck.random())


@dataclass(frozen=True)
class Pace:
    """How long the parts of an undisturbed run last, in seconds."""

    start: float
    epoch: float
    save: float
    end: float

    def window(self, epochs: int) -> float:
        """Return how long a start lasts that has so many epochs before it; of many, how long it may be shot."""
        return self.start + (epochs * self.epoch + self.end if epochs < AHEAD else AHEAD * self.epoch)


def undisturbed(launcher: Callable, run: Run) -> Pace:
    """Bring a run to its end, and return its pace."""
    start, marks = Start(launcher, run), {"begun": [], "done": []}
    while heard := start.hear():
        for kind in heard:
            marks[kind].append(time.perf_counter() - start.began)
    if start.close():
        raise BreachError(f"an undisturbed run failed: {start.log.read_text()}")
    begun, done = (np.array(times) for times in marks.values())
    epoch = float(np.diff(done).mean())
    return Pace(done[0] - epoch, epoch, float(np.median(done - begun)), time.perf_counter() - start.began - done[-1])


def aim(start: Start, shot: Shot, pace: Pace) -> int:
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
    victim = aim(start, shot, pace) if shot else 0
    if victim:
        with contextlib.suppress(ProcessLookupError):  # It has done its work.
            os.kill(victim, signal.SIGKILL)
    elif not start.ends(SECONDS_TO_HANG):
        raise BreachError("the run hangs")
    code, said = start.close(), start.log.read_text(errors="replace")
    if code and not victim:
        raise BreachError(f"a start that nobody had shot at failed with code {code}")
    if code:
        target = "launcher" if victim == start.pid else shot.target
        tally.kills[target, shot.aimed] += 1
        tally.landed[target] += bool(run.torn() - torn)
    if f"{drilled.LAB}: {SIZE} workers" in said and run.torn() & torn:
        raise BreachError("what a killed writer left stays for ever")
    for path in run.saved():
        try:
            load(path)
        except Exception as problem:
            raise BreachError(f"{path.name} does not load: {problem}") from None
    _follow(run, said, resumes, tally)


def _follow(run: Run, said: str, resumes: bool, tally: Tally) -> None:
    """Hold what a start said against what the earlier ones had reached."""
    resumed = re.search(r"^resumed after epoch (\d+)(?:, step (\d+))?", said, re.MULTILINE)
    tally.resumes += resumes
    tally.loaded += bool(resumed)
    if resumes and ("nothing to resume" in said or "is damaged" in said):
        raise BreachError("there was a checkpoint, and it was not used")
    if resumed:
        point = int(resumed[1]) + int(resumed[2] or 0) / drilled.STEPS
        tally.lost = max(tally.lost, run.reached - point)
        if point < run.reported:
            raise BreachError(f"epoch {run.reported} was said to be finished, and it {resumed[0]}")
        if run.reached - point > 1:
            raise BreachError(f"it had come {run.reached:.2f} epochs far, and {resumed[0]}")
    run.reported = max([run.reported, *map(int, re.findall(r"^epoch (\d+)/", said, re.MULTILINE))])
    for place in watch.read_places(run.folder / "places"):
        run.reached = max(run.reached, place.epoch - 1 + place.step / drilled.STEPS)


def compare(run: Run, calm: Run) -> None:
    """Hold the end of a run against that of another.

    Raises:
        BreachError: They are not equal bit for bit.
    """
    mine, expected = run.outcome(), calm.outcome()
    differ = [name for name in expected if mine.get(name) != expected[name]]
    if differ:
        raise BreachError(f"{run.options.name} has ended at other values than {calm.options.name}: {', '.join(differ)}")


def drill(kills: int, seed: int, store: Path, shots: int, every: int) -> Tally:
    """Run campaigns until so many shots have killed.

    Args:
        kills: How many.
        seed: Of the plan; the moments of the shots hang on the machine as well.
        store: An empty folder.
        shots: Kills of one campaign.
        every: Which of the starts are `labs run`'s.

    Raises:
        BreachError: A promise was not kept.
    """
    gc.freeze()  # A collection in a fork would copy all of this process's memory.
    with contextlib.suppress(PermissionError):  # On a busy machine a shot that waits for its turn comes after the save.
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    LIBC.prctl(SET_CHILD_SUBREAPER, 1)  # Whatever a start leaves behind becomes a child of this process.
    luck, tally, paces = random.Random(seed), Tally(), {}
    tqdm.monitor_interval = 0  # No thread: this process forks.
    with tqdm(total=kills, desc="kills", unit="", mininterval=1, file=sys.stderr) as bar:
        while tally.shots < kills:
            config = drilled.Config(seed=1000 * seed + tally.campaigns)
            calm = Run(store, f"seed{config.seed}-undisturbed", config)
            paces[by_fork] = undisturbed(by_fork, calm)
            if by_mpirun not in paces:
                other = Run(store, f"seed{config.seed}-undisturbed-mpirun", config)
                paces[by_mpirun] = undisturbed(by_mpirun, other)
                compare(other, calm)
                other.close()
            # Every second campaign saves between its steps as well, every third of a second.
            between = {"save_seconds": 0.3} if tally.campaigns % 2 else {}
            run, last = Run(store, f"seed{config.seed}", config, **between), min(kills, tally.shots + shots)
            while not run.finished:
                launcher = by_fork if (tally.starts.total() + 1) % every else by_mpirun
                shot = draw(luck, launcher, tally.aimed <= tally.shots / 2) if tally.shots < last else None
                shoot(launcher, run, shot, paces[launcher], tally)
                bar.set_postfix_str(f"{tally.landed.total()} inside a save", refresh=False)
                bar.update(tally.shots - bar.n)
            compare(run, calm)
            tally.campaigns += 1
            calm.close()
            run.close()
    return tally


def table(tally: Tally, seconds: float) -> str:
    """Return what has happened, as a page of Markdown has it."""
    targets = sorted({target for target, _ in tally.kills}, key=["rank 0", "rank 1", "launcher", "mpirun"].index)
    rows = [(target, tally.kills[target, False], tally.kills[target, True], tally.landed[target]) for target in targets]
    rows.append(("together", *(sum(column) for column in list(zip(*rows, strict=True))[1:])))
    head = ("killed", "at any moment", "aimed into a save", "landed inside a save")
    lines = [head, ["---"] + ["---:"] * 3, *rows]
    return "\n".join([
        *(f"| {' | '.join(map(str, line))} |" for line in lines), "",
        f"{tally.shots} kills in {tally.campaigns} campaigns and {tally.starts.total()} starts "
        f"({tally.starts['by_mpirun']} of them by mpirun), {seconds:.0f} s.",
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
    asked = parser.parse_args()
    store, began = Path(tempfile.mkdtemp(prefix="drill-")), time.perf_counter()
    # What Open MPI keeps while it runs, and a killed one leaves, lies there too.
    os.environ |= {"TMPDIR": str(store), "OMPI_MCA_btl_sm_backing_directory": str(store)}
    try:
        tally = drill(asked.kills, asked.seed, store, asked.shots, asked.every)
    except BreachError as problem:
        print(f"drill: error: {problem}; see {store}, and again with --seed {asked.seed}", file=sys.stderr)
        return 1
    finally:
        for pid in below(os.getpid()):
            os.kill(pid, signal.SIGKILL)
    print(table(tally, time.perf_counter() - began))
    shutil.rmtree(store)
    return 0


if __name__ == "__main__":
    sys.exit(main())
