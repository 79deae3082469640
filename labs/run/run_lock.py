"""The run lock: one process holds a run's folder until it ends; others get an error that names the holder."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from filelock import Timeout

from labs.run import naming
from labs.run.errors import LabError
from labs.run.lock import Lock
from labs.run.options import Options

PATIENCE = 3.0
"""Seconds to wait for the lock: by then its holder has written its name."""
BOOKKEEPING = {".lock", "holder", "hosts", "places", "heartbeats", "timeline.json"}
"""Files of a run's folder that exist before the run has saved anything."""


def run_lock(folder: Path) -> Lock:
    """Return the lock of a run's folder."""
    return Lock(folder / ".lock", folder / "holder")


@contextlib.contextmanager
def hold(lab: str, options: Options, workers: int) -> Iterator[str]:
    """Choose a run's name and lock its folder in this block.

    Args:
        lab: Name of the lab.
        options: Where the run is stored.
        workers: The run's number of workers.

    Raises:
        LabError: Another process holds the run, or it is finished, or it was interrupted and is not to be resumed.
    """
    runs = naming.results_root(options) / lab
    name = naming.run_name(options, runs, workers)
    with discarding_unused(runs / name), _locked(lab, runs / name, options):
        yield name


@contextlib.contextmanager
def discarding_unused(folder: Path) -> Iterator[None]:
    """Remove a run's folder if this block made it and fails with a LabError before there is anything to resume.

    Wrong data, for example, is detected only after the folder is made.
    """
    fresh = not folder.exists()
    try:
        yield
    except LabError:
        if fresh and folder.is_dir():
            with contextlib.suppress(OSError, Timeout), run_lock(folder).hold():
                if {path.name for path in folder.iterdir()} <= BOOKKEEPING:
                    shutil.rmtree(folder)
        raise


@contextlib.contextmanager
def _locked(lab: str, folder: Path, options: Options) -> Iterator[None]:
    """Lock a run's folder in this block; raises what `hold` raises."""
    lock = run_lock(folder)
    with contextlib.ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(lock.hold(PATIENCE))
            _check(lab, folder, options.resume)
            lock.sign()
        except Timeout:
            raise _held(folder) from None
        except OSError as error:
            raise LabError(f"cannot write to {folder}: {error.strerror}; choose another --results") from None
        for leftover in folder.rglob(".*.part"):  # A killed process leaves its unfinished files.
            leftover.unlink()
        yield


def refuse_held(folder: Path) -> None:
    """Raise if a process holds a run, before anything is started for it or changed in it.

    Args:
        folder: The run's folder.

    Raises:
        LabError: Names the holder.
    """
    with contextlib.suppress(OSError):  # `hold` reports a folder that cannot be written.
        if run_lock(folder).is_held():
            raise _held(folder)


def _held(folder: Path) -> LabError:
    return LabError(f"run {folder.name!r} is locked by {run_lock(folder).holder()}; choose another --name")


def _check(lab: str, folder: Path, resume: bool) -> None:
    """Refuse a finished run, and an interrupted one that is not to be resumed."""
    if (folder / "record.json").exists():
        raise LabError(f"run {folder.name!r} of {lab} is finished ({folder}); choose another --name")
    if any(folder.glob("checkpoints/*.npz")) and not resume:
        raise LabError(f"run {folder.name!r} of {lab} was interrupted; continue with --resume, "
                       "or choose another --name")
