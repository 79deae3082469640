"""Locks: one process holds a run's folder until it ends, and others get an error that names the holder."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import re
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from labs.run import atomic
from labs.run.errors import LabError
from labs.run.options import Options

PATIENCE = 3.0
"""Seconds to wait for the lock; after them its holder has written its name."""
STARTED = "run.json"
"""The file in a run's folder with the workers of its first start, and the Config and Options of its last."""
BOOKKEEPING = {".lock", "holder", "hosts", "heartbeats", "timeline.json", STARTED}
"""Files in a run's folder before the run has saved anything."""


class Lock:
    """A lock file and its note. If the process that holds the lock dies, the kernel releases it.

    Args:
        path: The lock file; its folder must exist.
        note: The file that names the holder; if omitted, it lies beside the lock.
    """

    def __init__(self, path: Path, note: Path | None = None):
        self.path, self.note = path, note or path.with_suffix(".holder")

    def hold(self, patience: float = 0.0) -> FileLock:
        """Return a context that holds the lock; it raises Timeout if another process holds it, or OSError.

        Args:
            patience: How long to wait for another holder, in seconds; -1 waits without limit.
        """
        return FileLock(self.path, timeout=patience)

    def sign(self) -> None:
        """Write this process's name into the note; only the holder may call this."""
        atomic.write_text(self.note, f"process {os.getpid()} on {socket.gethostname()}")

    def holder(self) -> str:
        """Return the process that signed last, for messages."""
        return self.note.read_text() if self.note.exists() else "another process"

    def is_held(self) -> bool:
        """Return whether a process holds the lock; False if it cannot be opened, which `hold` reports."""
        try:
            if self.path.exists():
                with self.hold():
                    pass
        except Timeout:
            return True
        except OSError:
            pass
        return False


def run_lock(folder: Path) -> Lock:
    """Return the lock of a run's folder."""
    return Lock(folder / ".lock", folder / "holder")


@contextlib.contextmanager
def hold(lab: str, options: Options, workers: int, config: Any = None) -> Iterator[str]:
    """Choose a run's name, lock its folder in this block, and yield the name.

    Args:
        lab: Name of the lab.
        options: The run's Options.
        workers: The run's number of workers; 0 if it may change.
        config: The lab's Config.

    Raises:
        LabError: Another process holds the run, or the run is finished, or it was interrupted and --resume is missing.
    """
    with reserved(lab, resumed(lab, options), workers) as folder, contextlib.ExitStack() as stack:
        try:
            stack.enter_context(run_lock(folder).hold(PATIENCE))
            refuse_taken(lab, folder, options, config, workers)
            run_lock(folder).sign()
        except Timeout:
            raise _held(folder) from None
        except OSError as error:
            raise _unwritable(folder, error) from None
        for leftover in folder.rglob(".*.part"):  # A killed process leaves its unfinished files.
            leftover.unlink()
        begun = started_with(folder) if is_saved(folder) else {}
        started = {"workers": begun.get("workers", workers), "config": dataclasses.asdict(config) if config else {},
                   "options": dataclasses.asdict(dataclasses.replace(options, name=None, results=None, resume=False))}
        atomic.write_text(folder / STARTED, json.dumps(started, default=str))
        yield folder.name


@contextlib.contextmanager
def reserved(lab: str, options: Options, workers: int) -> Iterator[Path]:
    """Make a run's folder, so that no other run takes its name, and yield it.

    The folder is removed if the block fails or is interrupted before anything is saved: wrong data, for example, may be
    detected only after the folder is made.

    Args:
        lab: Name of the lab.
        options: The run's Options. Without a name the folder is named after the time, with a number if it exists.
        workers: The run's number of workers.

    Raises:
        LabError: The folder cannot be made.
    """
    name = options.name or f"{time.strftime('%Y%m%d-%H%M%S')}-w{workers}"
    for each in itertools.chain([name], (f"{name}-{count}" for count in itertools.count(2))):
        folder = options.results_root / lab / each
        fresh = _make(folder)
        if fresh or options.name:
            break
    try:
        yield folder
    except (LabError, OSError, KeyboardInterrupt):
        if fresh and not run_lock(folder).is_held():
            _remove_unused(folder)
        raise


def _make(folder: Path) -> bool:
    """Make a folder, and return whether it is new: of several processes, only one makes it."""
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        if not folder.is_dir():
            raise _unwritable(folder, error) from None
        return False
    return True


def _remove_unused(folder: Path) -> None:
    with contextlib.suppress(OSError):
        if {path.name for path in folder.iterdir()} <= BOOKKEEPING:
            shutil.rmtree(folder)
            folder.parent.rmdir()  # If this was its only run.


def _unwritable(folder: Path, error: OSError) -> LabError:
    return LabError(f"cannot write to {folder}: {error.strerror}; choose another --results")


def _held(folder: Path) -> LabError:
    return LabError(f"run {folder.name!r} is locked by {run_lock(folder).holder()}; choose another --name")


def resumed(lab: str, options: Options) -> Options:
    """Return the options; --resume without --name gets the name of the newest unfinished run that no process holds."""
    if options.name or not options.resume:
        return options
    runs = options.results_root / lab
    saved = [path for path in runs.glob("*/checkpoints/*.npz") if not (path.parents[1] / "record.json").exists()]
    newest = (path.parents[1] for path in sorted(saved, key=lambda path: path.stat().st_mtime, reverse=True))
    return dataclasses.replace(options, name=next((run.name for run in newest if not run_lock(run).is_held()), None))


def refuse_held(folder: Path) -> None:
    """Raise LabError if a process holds a run; called before anything is started for the run."""
    if run_lock(folder).is_held():
        raise _held(folder)


def refuse_taken(lab: str, folder: Path, options: Options, config: Any, workers: int | None = None) -> None:
    """Refuse a run that is finished, that was interrupted if --resume is missing, or that has other settings.

    Args:
        lab: Name of the lab.
        folder: The run's folder.
        options: The run's Options.
        config: The lab's Config, or None.
        workers: The number of workers, if it is known.

    Raises:
        LabError: The run is finished or cannot be resumed like this; the message names the cause.
    """
    if (folder / "record.json").exists():
        raise LabError(f"run {folder.name!r} of {lab} is finished ({folder}); choose another --name")
    if not is_saved(folder):
        return
    if not options.resume:
        raise LabError(f"run {folder.name!r} of {lab} was interrupted; continue with --resume, "
                       "or choose another --name")
    if (begun := started_with(folder)) and config:
        before = begun["config"] | {"preset": begun["options"].get("preset", options.preset)}
        now = dataclasses.asdict(config) | {"preset": options.preset}
        if begun["workers"] and workers:  # 0: it may change, as in elastic training.
            before, now = before | {"workers": begun["workers"]}, now | {"workers": workers}
        refuse_changed(folder.name, before, now)
        if hasattr(config, "epochs"):
            refuse_fewer_epochs(folder, config.epochs)


def is_saved(folder: Path) -> bool:
    """Return whether a run has a checkpoint."""
    return any(folder.glob("checkpoints/*.npz"))


def started_with(folder: Path) -> dict[str, Any]:
    """Return the "workers", "config" and "options" of STARTED; {} if they are not known."""
    try:
        begun = json.loads((folder / STARTED).read_bytes())
        return begun if isinstance(begun["config"] | begun["options"], dict) and begun["workers"] >= 0 else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def refuse_changed(run: str, before: Mapping[str, Any], now: Mapping[str, Any], are_options: bool = True) -> None:
    """Refuse to resume a run with other settings; only the number of epochs may change.

    Args:
        run: The run's name.
        before: The settings of its first start.
        now: The settings of the resumed run.
        are_options: Whether the settings are options of the command line.

    Raises:
        LabError: A setting differs; the message names each such setting with both values.
    """
    now = json.loads(json.dumps(dict(now), default=str))
    differing = [f"{'--' + name.replace('_', '-') if are_options else name} {before.get(name)}, not {now.get(name)}"
                 for name in {**before, **now} if name != "epochs" and now.get(name) != before.get(name)]
    if differing:
        cure = "omit what differs when you resume" if are_options else "resume it with the earlier settings"
        raise LabError(f"run {run!r} was started with {', and '.join(differing)}; {cure}, or choose another --name")


def refuse_fewer_epochs(folder: Path, epochs: int) -> None:
    """Refuse to resume a run that has already trained for more epochs.

    Args:
        folder: The run's folder.
        epochs: The value of --epochs.

    Raises:
        LabError: The run has begun a later epoch; the message names the smallest number of epochs to ask for.
    """
    last = max((path.stem for path in folder.glob("checkpoints/epoch-*.npz")), default="")
    match = re.fullmatch(r"epoch-(\d+)(-step-\d+)?", last)
    if match and (begun := int(match[1]) + bool(match[2])) > epochs:
        raise LabError(f"run {folder.name!r} has begun epoch {begun}, and --epochs {epochs} would end before it; omit "
                       f"--epochs when you resume, give --epochs {begun} or more, or choose another --name")
