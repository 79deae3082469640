"""A run that is started until it comes to its end, and one start of it."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import struct
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from labs.run.options import Options
from labs.training import checkpoint
from tests.drill import training
from tests.drill.launchers import LIBC, SET_PARENT_DEATH_SIGNAL, fork

CLOCKS = ("train_seconds", "val_seconds")
SECONDS_TO_HANG, SECONDS_TO_END = 120.0, 30.0


class BreachError(Exception):
    """A promise that was not kept."""


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
            events, heard, offset = os.read(self.file, 1 << 16), [], 0
        except BlockingIOError:
            return []
        while offset < len(events):
            _, mask, _, length = struct.unpack_from("iIII", events, offset)
            name = events[offset + 16 : offset + 16 + length]
            if b".npz" in name:
                heard.append("begun" if mask & self.CREATE else "done")
            offset += 16 + length
        return heard


class Run:
    """One run that is started until it comes to its end, and what is known of it.

    Args:
        results_root: The results root.
        name: Of the run.
        config: Of the run.
        save_seconds: See Options.
    """

    def __init__(self, root: Path, name: str, config: training.Config, save_seconds: float = Options.save_seconds):
        self.config, self.options = config, Options(name, root, resume=True, save_seconds=save_seconds)
        self.folder = root / training.LAB.name / name
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
        return checkpoint.by_age(self.checkpoints)

    def outcome(self) -> dict[str, object]:
        """Return what no shot may change: the arrays of the last checkpoint, and the history without clocks."""
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
        LIBC.prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)  # The drill may be ended by a signal too.
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
        return next((pid for pid in below(self.pid) if program_of(pid) in names), 0)

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
                        raise BreachError(f"left behind: {[program_of(pid) for pid in below(os.getpid())]}")
                    time.sleep(0.005)
        return code


def below(pid: int) -> list[int]:
    """Return the processes that a process has started, and those that they have started."""
    result = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # It has ended.
            for child in map(int, path.read_text().split()):
                result += [child, *below(child)]
    return result


def program_of(pid: int) -> str:
    """Return what a process is: a rank, or the name of its program."""
    with contextlib.suppress(OSError):
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        rank = [entry.split(b"=")[1].decode() for entry in environment if entry.startswith(b"OMPI_COMM_WORLD_RANK=")]
        return f"rank {rank[0]}" if rank else Path(f"/proc/{pid}/comm").read_text().strip()
    return "gone"
