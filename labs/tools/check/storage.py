"""Writable folders, and downloaded data sets."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from labs.run import paths
from labs.run.errors import LabError
from labs.run.paths import shown
from labs.tools.check.findings import Finding, absent, fail, ok, warn

NEEDED_MB = 100
"""Checkpoints and curves of a demo."""
SPARE_MB = 2000
"""A run with a large model, or the decoded images of a data set."""
SPARE_FILES = 1000


def results() -> Finding:
    """Check the results folder: free space and permissions."""
    finding = _writable(paths.results_dir(), "LABS_RESULTS")
    closed = [lab for lab in paths.results_dir().glob("*/") if not os.access(lab, os.W_OK | os.X_OK)]
    if finding.state != "fail" and closed:  # Made by a run that root has started.
        return fail(f"{shown(closed[0])} cannot be written (it belongs to {owner(closed[0])})",
                    f"sudo chown -R {os.getuid()} {shown(closed[0])}")
    return finding


def data() -> Finding:
    """Check the folder of the data sets."""
    return _writable(paths.data_dir(), "LABS_DATA")


def cache() -> Finding:
    """Check the cache folder, which holds decoded images and the like."""
    return _writable(paths.cache_dir(), "LABS_CACHE")


def temporary() -> Finding:
    """Check the folder of temporary files."""
    named = os.environ.get("TMPDIR")
    if named and not os.path.isdir(named):
        return warn(f"TMPDIR={named} is not a folder; {tempfile.gettempdir()} is used", "unset TMPDIR")
    return _writable(Path(tempfile.gettempdir()), "TMPDIR")


def datasets() -> Finding:
    """List the downloaded data sets; the labs use synthetic data in place of the others."""
    from labs.datasets.registry import DATASETS, locate

    here = [name for name, dataset in DATASETS.items() if (paths.data_dir() / dataset.folder).is_dir()]
    for name in here:
        try:
            locate(name, "real")
        except LabError as error:
            folder = shown(paths.data_dir() / DATASETS[name].folder)
            return fail(str(error), f"move {folder} away, then labs data fetch {name}")
    if not here:
        return absent(f"none of {len(DATASETS)}; the labs make synthetic data", "labs data fetch NAME")
    return ok(f"{', '.join(here)} ({len(here)} of {len(DATASETS)})")


def _writable(folder: Path, variable: str) -> Finding:
    """Write a megabyte into a folder, or into its nearest existing parent, and check the free space."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    elsewhere = f"export {variable}=FOLDER, one that you may write to"
    if not there.is_dir():
        return fail(f"{shown(there)} is a file, but should be a folder", elsewhere)
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(bytes(1 << 20))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return fail(f"{shown(there)} cannot be written: {error.strerror} (it belongs to {owner(there)})", elsewhere)
    disk, free = os.statvfs(there), shutil.disk_usage(there).free / 1e6
    if disk.f_files and disk.f_favail < SPARE_FILES:
        return fail(f"the disk of {shown(there)} can hold only {disk.f_favail} more files", elsewhere)
    if free < SPARE_MB:
        space = f"{free:.0f} MB free for {shown(folder)}"
        return fail(space, elsewhere) if free < NEEDED_MB else warn(f"{space}; a large run takes more", elsewhere)
    return ok(f"{free / 1e3:.0f} GB free for {shown(folder)}")


def owner(path: Path) -> str:
    """Return the name of a file's owner, or the number if this machine has no name for it."""
    try:
        return path.owner()
    except KeyError:
        return f"user {path.stat().st_uid}"
