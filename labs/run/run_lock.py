"""A run's name: one job holds it until its end, and the others are told who does."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from labs.run import atomic, naming
from labs.run.errors import LabError
from labs.run.options import Options

PATIENCE = 1.0
"""Seconds to wait for the name: within them, whoever was first has written who it is."""
BOOKKEEPING = {".lock", "holder", "hosts", "heartbeats", "places", "timeline.json"}
"""What lies in a run's folder before the run has saved anything; `places` is what older versions called `heartbeats`."""


@contextlib.contextmanager
def hold(lab: str, options: Options, workers: int) -> Iterator[str]:
    """Choose a run's name and hold its folder in this block; the kernel lets go of what a dead process held.

    Args:
        lab: Name of the lab.
        options: Where the run lives.
        workers: How many the run has.

    Raises:
        LabError: Another process holds the run, or it is finished, or interrupted and not to be resumed.
    """
    runs = naming.results_root(options) / lab
    name = naming.run_name(options, runs, workers)
    with discarding_unused(runs / name), _held_by_this(lab, runs / name, options):
        yield name


@contextlib.contextmanager
def discarding_unused(folder: Path) -> Iterator[None]:
    """Remove a run's folder if the block makes it and ends with a LabError before anything in it can be resumed.

    Wrong data, for example, is found only after the folder is made.
    """
    fresh = not folder.exists()
    try:
        yield
    except LabError:
        if fresh and folder.is_dir():
            with contextlib.suppress(OSError, Timeout), FileLock(folder / ".lock", timeout=0):
                if {path.name for path in folder.iterdir()} <= BOOKKEEPING:
                    shutil.rmtree(folder)
        raise


@contextlib.contextmanager
def _held_by_this(lab: str, folder: Path, options: Options) -> Iterator[None]:
    """Hold a run's folder for this process; see `claim`."""
    with contextlib.ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(FileLock(folder / ".lock", timeout=PATIENCE))
            _check(lab, folder, options.resume)
            atomic.write_text(folder / "holder", f"process {os.getpid()} on {socket.gethostname()}")
        except Timeout:
            raise _held(folder) from None
        except OSError as error:
            raise LabError(f"cannot write to {folder}: {error.strerror}; choose another --results") from None
        for left_over in folder.rglob(".*.part"):  # Of writers that were killed.
            left_over.unlink()
        yield


def refuse_held(folder: Path) -> None:
    """Stop if a process holds a run, before anything is started for it or changed in it.

    Args:
        folder: Of the run.

    Raises:
        LabError: Names the holder.
    """
    if not (folder / ".lock").exists():
        return
    try:
        with FileLock(folder / ".lock", timeout=0):
            pass
    except Timeout:
        raise _held(folder) from None
    except OSError:
        pass  # A folder that cannot be written is told by `claim`.


def _held(folder: Path) -> LabError:
    holder = (folder / "holder").read_text() if (folder / "holder").exists() else "another process"
    return LabError(f"run {folder.name!r} is held by {holder}; choose another --name")


def _check(lab: str, folder: Path, resume: bool) -> None:
    """Refuse to run again what is finished, and to begin again what was interrupted."""
    if (folder / "record.json").exists():
        raise LabError(f"run {folder.name!r} of {lab} is finished ({folder}); choose another --name")
    if any(folder.glob("checkpoints/*.npz")) and not resume:
        raise LabError(f"run {folder.name!r} of {lab} was interrupted; go on with --resume, or choose another --name")
