"""The run lock: one process holds a run's folder until it ends; others get an error that names the holder."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from filelock import Timeout

from labs.run import atomic
from labs.run.errors import LabError
from labs.run.lock import Lock
from labs.run.options import Options
from labs.run.text import printable

PATIENCE = 3.0
"""Seconds to wait for the lock; after them its holder has written its name."""
STARTED = "run.json"
"""The file in a run's folder with the number of workers, the Config and the Options of its first start."""
BOOKKEEPING = {".lock", ".launch", "holder", "hosts", "heartbeats", "timeline.json", STARTED}
"""Files in a run's folder before the run has saved anything."""


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
    with (reserved(lab, resumed(lab, options), workers) as folder,
          _signed(run_lock(folder), PATIENCE, lambda: refuse_taken(lab, folder, options, config, workers))):
        for leftover in folder.rglob(".*.part"):  # A killed process leaves its unfinished files.
            leftover.unlink()
        begun = started_with(folder) if is_saved(folder) else {}
        started = {"workers": begun.get("workers", workers), "config": dataclasses.asdict(config) if config else {},
                   "options": dataclasses.asdict(dataclasses.replace(options, name=None, results=None, resume=False))}
        atomic.write_text(folder / STARTED, json.dumps(started, default=str))
        yield folder.name


def resumed(lab: str, options: Options) -> Options:
    """Return the options; --resume without --name gets the name of the newest unfinished run that no process holds."""
    if options.name or not options.resume:
        return options
    runs = options.results_root / lab
    saved = [path for path in runs.glob("*/checkpoints/*.npz") if not (path.parents[1] / "record.json").exists()]
    newest = sorted(saved, key=lambda path: path.stat().st_mtime, reverse=True)
    names = (path.parents[1].name for path in newest)
    return dataclasses.replace(options, name=next((name for name in names if not _is_held(runs / name)), None))


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
    names = [name] if options.name else itertools.chain([name], (f"{name}-{count}" for count in itertools.count(2)))
    for each in names:
        folder = options.results_root / lab / each
        fresh = _make(folder)
        if fresh or options.name:
            break
    try:
        yield folder
    except (LabError, OSError, KeyboardInterrupt):
        if fresh:
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
    with contextlib.suppress(OSError, Timeout), run_lock(folder).hold(), _launch_lock(folder).hold():
        if {path.name for path in folder.iterdir()} <= BOOKKEEPING:
            shutil.rmtree(folder)
            folder.parent.rmdir()  # If this was its only run.


@contextlib.contextmanager
def _signed(lock: Lock, patience: float = 0.0, check: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold one of a run's locks in this block and record the holder, if a check passes; raise as `hold` does."""
    folder = lock.path.parent
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(lock.hold(patience))
            check()
            lock.sign()
        except Timeout:
            raise _held(folder) from None
        except OSError as error:
            raise _unwritable(folder, error) from None
        yield


def _unwritable(folder: Path, error: OSError) -> LabError:
    return LabError(f"cannot write to {printable(folder)}: {error.strerror}; choose another --results")


def _held(folder: Path) -> LabError:
    return LabError(f"run {folder.name!r} is locked by {run_lock(folder).holder()}; choose another --name")


def _launch_lock(folder: Path) -> Lock:
    return Lock(folder / ".launch", folder / "holder")


@contextlib.contextmanager
def launching(folder: Path) -> Iterator[None]:
    """Hold a run for its launcher in this block: its workers lock it seconds later.

    Raises:
        LabError: Another launcher holds it.
    """
    with _signed(_launch_lock(folder)):
        yield


def _is_held(folder: Path) -> bool:
    return run_lock(folder).is_held() or _launch_lock(folder).is_held()


def refuse_held(folder: Path) -> None:
    """Raise if a worker holds a run; called before anything is started or changed for the run.

    Raises:
        LabError: A worker holds the run; the message names it.
    """
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
    """Return "workers", "config" and "options" of a run's first start; {} if they are not known."""
    try:
        started = json.loads(atomic.read_bytes(folder / STARTED, 2**20))
        return {"workers": int(started["workers"]), "config": dict(started["config"]),
                "options": dict(started.get("options", {}))}
    except (LabError, OSError, ValueError, TypeError, KeyError):
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
    differing = [f"{'--' + name.replace('_', '-') if are_options else name} {before.get(name)}, not {value}"
                 for name, value in now.items() if name != "epochs" and value != before.get(name)]
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
