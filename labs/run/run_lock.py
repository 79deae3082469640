"""Locks: one process holds a run's folder until it ends, and others get an error."""

import contextlib
import dataclasses
import itertools
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from labs.run import atomic
from labs.run.errors import LabError
from labs.run.fields import Options

STARTED = "run.json"  # Has the number of workers of a run's first start, and the Config and Options of its last.


def is_held(folder: Path) -> bool:
    """Return whether a process holds a run; False if the lock cannot be opened, which `hold` reports."""
    try:
        if (folder / ".lock").exists():
            FileLock(folder / ".lock").acquire(timeout=0).lock.release()
    except OSError as problem:
        return isinstance(problem, Timeout)
    return False


@contextlib.contextmanager
def hold(lab: str, options: Options, workers: int, config: Any = None) -> Iterator[str]:
    """Choose a run's name, lock its folder in this block, and yield the name; raise LabError if it is taken."""
    folder = make_folder(lab, resumed(lab, options), workers)
    try:
        held = FileLock(folder / ".lock").acquire(3.0)  # `is_held` of another process may have it for a moment.
    except Timeout:
        raise _locked(folder) from None
    with held:
        refuse_taken(folder, options, config, workers)
        for leftover in folder.rglob(".*.part"):  # A killed process leaves its unfinished files.
            leftover.unlink()
        begun = started_with(folder) if is_saved(folder) else {}
        started = {"workers": begun.get("workers", workers), "config": dataclasses.asdict(config) if config else {},
                   "options": dataclasses.asdict(dataclasses.replace(options, name=None, results=None, resume=False))}
        atomic.write_text(folder / STARTED, json.dumps(started, default=str))
        yield folder.name


def make_folder(lab: str, options: Options, workers: int) -> Path:
    """Make a run's folder, and return it; without a name it is named after the time, with a number if that exists."""
    name = options.name or f"{time.strftime('%Y%m%d-%H%M%S')}-w{workers}"
    for count in itertools.count(1):
        folder = options.results_root / lab / (name + f"-{count}" * (count > 1))
        try:
            folder.mkdir(parents=True, exist_ok=bool(options.name))  # Of several processes, only one makes it.
            break
        except OSError as error:
            if not folder.is_dir():
                raise LabError(f"cannot write to {folder}: {error.strerror}; choose another --results") from None
    return folder


def _locked(folder: Path) -> LabError:
    return LabError(f"run {folder.name!r} is locked by another process; choose another --name")


def refuse_held(folder: Path) -> None:
    """Raise LabError if a process holds a run."""
    if is_held(folder):
        raise _locked(folder)


def resumed(lab: str, options: Options) -> Options:
    """Return the options; --resume without --name gets the name of the newest unfinished run that no process holds."""
    if options.name or not options.resume:
        return options
    runs = options.results_root / lab
    saved = [path for path in runs.glob("*/checkpoints/*.npz") if not (path.parents[1] / "record.json").exists()]
    newest = (path.parents[1] for path in sorted(saved, key=lambda path: path.stat().st_mtime, reverse=True))
    return dataclasses.replace(options, name=next((run.name for run in newest if not is_held(run)), None))


def refuse_taken(folder: Path, options: Options, config: Any, workers: int) -> None:
    """Refuse a run that is finished, that was interrupted if --resume is missing, or that has other settings."""
    run = f"run {folder.name!r} of {folder.parent.name}"
    if (folder / "record.json").exists():
        raise LabError(f"{run} is finished ({folder}); choose another --name")
    if not is_saved(folder):
        return
    if not options.resume:
        raise LabError(f"{run} was interrupted; continue with --resume, or choose another --name")
    if (begun := started_with(folder)) and config:
        before = begun["config"] | {"preset": begun["options"].get("preset", options.preset)}
        now = dataclasses.asdict(config) | {"preset": options.preset}
        if begun["workers"] and workers:  # 0: it may change, as in elastic training.
            before, now = before | {"workers": begun["workers"]}, now | {"workers": workers}
        refuse_changed(folder.name, before, now)
        last = max(path.stem for path in folder.glob("checkpoints/*.npz"))  # As "epoch-00002-step-0000013".
        epoch = int(last.split("-")[1]) + ("step" in last)
        if epoch > getattr(config, "epochs", epoch):
            raise LabError(f"run {folder.name!r} has begun epoch {epoch}; resume it with --epochs {epoch} or more")


def is_saved(folder: Path) -> bool:
    """Return whether a run has a checkpoint."""
    return any(folder.glob("checkpoints/*.npz"))


def started_with(folder: Path) -> dict[str, Any]:
    """Return the "workers", "config" and "options" of STARTED; {} if there is no such file."""
    return json.loads((folder / STARTED).read_bytes()) if (folder / STARTED).exists() else {}


def refuse_changed(run: str, before: Mapping[str, Any], now: Mapping[str, Any], are_options: bool = True) -> None:
    """Refuse to resume a run with other settings, which may be options; only the number of epochs may change."""
    now = json.loads(json.dumps(dict(now), default=str))
    differing = [f"{'--' + name.replace('_', '-') if are_options else name} {before.get(name)}, not {now.get(name)}"
                 for name in {**before, **now} if name != "epochs" and now.get(name) != before.get(name)]
    if differing:
        cure = "omit what differs when you resume" if are_options else "resume it with the earlier settings"
        raise LabError(f"run {run!r} was started with {', and '.join(differing)}; {cure}, or choose another --name")
