"""Places to write to, locks that are held, and the data sets that are here."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

from labs.checks.findings import Finding, absent, fail, ok, warn
from labs.run import paths
from labs.run.errors import LabError
from labs.run.lock import Lock
from labs.run.paths import shown

NEEDED_MB = 100
"""Checkpoints and curves of a demo."""
SPARE_MB = 2000
"""A run with a large model, or a data set's decoded pictures."""
SPARE_FILES = 1000
SKEW_SECONDS = 60


def results() -> Finding:
    """Look at the results store: its room, its rights, and whether its clock is ours."""
    found = _writable(paths.results_dir(), "LABS_RESULTS")
    closed = [lab for lab in paths.results_dir().glob("*/") if not os.access(lab, os.W_OK | os.X_OK)]
    if found.state != "fail" and closed:  # Of a run that root has started.
        return fail(f"{shown(closed[0])} cannot be written (it belongs to {owner(closed[0])})",
                    f"sudo chown -R {os.getuid()} {shown(closed[0])}")
    written = [path.stat().st_mtime for path in paths.results_dir().glob("*/*/record.json")]
    ahead = max(written, default=0) - time.time()
    if found.state == "ok" and ahead > SKEW_SECONDS:
        return warn(f"its newest record is {ahead / 60:.0f} minutes ahead of this machine's clock: --resume may take "
                    "an older run for the newest", "set the clock, as root: timedatectl set-ntp true")
    return found


def data() -> Finding:
    """Look at the folder of the data sets."""
    return _writable(paths.data_dir(), "LABS_DATA")


def cache() -> Finding:
    """Look at the folder of what can be made again, such as decoded pictures."""
    return _writable(paths.cache_dir(), "LABS_CACHE")


def temporary() -> Finding:
    """Look at the folder of what programs need for a moment only."""
    named = os.environ.get("TMPDIR")
    if named and not Path(named).is_dir():
        return warn(f"TMPDIR={named} is no folder; {tempfile.gettempdir()} is taken", "unset TMPDIR")
    return _writable(Path(tempfile.gettempdir()), "TMPDIR")


def locks() -> Finding:
    """Look for runs and downloads that somebody holds, or has left."""
    runs = list(paths.results_dir().glob("*/*/.lock"))
    held = []
    for lock in [*runs, *paths.data_dir().glob("downloads/*/lock")]:
        try:
            if Lock(lock).is_held():
                held.append(lock)
        except OSError as error:
            return _refused(lock, error, f"sudo chown -R {os.getuid()} {shown(lock.parent)}")
    for lock in held:
        if stopped := [pid for pid in _open_in(lock) if _state(pid) in "Tt"]:
            return warn(f"{_of(lock)} is held by process {stopped[0]}, which is stopped", f"kill -CONT {stopped[0]}")
    told = f"{len(held)} under way: {', '.join(map(_of, held))}" if held else "none is held"
    return _interrupted([lock.parent for lock in runs if lock not in held], told)


def _interrupted(runs: list[Path], told: str) -> Finding:
    """Name the run that was interrupted last: the lock that it left holds nothing."""
    saved = [run for run in runs if any(run.glob("checkpoints/*.npz")) and not (run / "record.json").exists()]
    if not saved:
        return ok(told)
    last = max(saved, key=lambda run: run.stat().st_mtime)
    return Finding("ok", f"{told}; {last.parent.name}/{last.name} was interrupted",
                   f"labs run {last.parent.name} --name {last.name} --resume, with the options that it had")


def datasets() -> Finding:
    """Name the real data sets that are here; the labs draw stand-ins for those that are not."""
    from labs.datasets import fetch
    from labs.datasets.registry import DATASETS

    here = [name for name, dataset in DATASETS.items() if (paths.data_dir() / dataset.folder).is_dir()]
    for name in here:
        try:
            fetch.locate(name, "real")
        except LabError as error:
            folder = shown(paths.data_dir() / DATASETS[name].folder)
            return fail(str(error), f"move {folder} away, then labs data fetch {name}")
    if not here:
        return absent(f"none of {len(DATASETS)}; the labs draw their own pictures", "labs data fetch NAME")
    return ok(f"{', '.join(here)} ({len(here)} of {len(DATASETS)})")


def _writable(folder: Path, variable: str) -> Finding:
    """Write a megabyte into a folder, or where it would be made, and count what is free there."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    elsewhere = f"export {variable}=FOLDER, one where you may write"
    if not there.is_dir():
        return fail(f"{shown(there)} is a file, and should be a folder", elsewhere)
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(bytes(1 << 20))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return _refused(there, error, elsewhere)
    disk, free = os.statvfs(there), shutil.disk_usage(there).free / 1e6
    if disk.f_files and disk.f_favail < SPARE_FILES:
        return fail(f"the disk of {shown(there)} takes {disk.f_favail} more files, however small", elsewhere)
    if free < SPARE_MB:
        room = f"{free:.0f} MB free for {shown(folder)}"
        return fail(room, elsewhere) if free < NEEDED_MB else warn(f"{room}; a large run takes more", elsewhere)
    return ok(f"{free / 1e3:.0f} GB free for {shown(folder)}")


def _refused(path: Path, error: OSError, cure: str) -> Finding:
    return fail(f"{shown(path)} cannot be written: {error.strerror} (it belongs to {owner(path)})", cure)


def owner(path: Path) -> str:
    """Return the name of a file's owner, or the number of one that this machine does not know."""
    try:
        return path.owner()
    except KeyError:
        return f"user {path.stat().st_uid}"


def _of(lock: Path) -> str:
    return "/".join(lock.parent.parts[-2:])


def _open_in(file: Path) -> list[int]:
    """Return the processes that have a file open, of those that one may look into."""
    pids = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.path.samefile(descriptor, file) for descriptor in (process / "fd").iterdir()):
                pids.append(int(process.name))
        except OSError:  # It has ended, or is another user's.
            continue
    return sorted(pids)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"
