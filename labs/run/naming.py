"""Run names and run folders: results/<lab>/<run>."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING

from labs.run.errors import LabError, quoted
from labs.run.paths import results_dir

if TYPE_CHECKING:
    from labs.run.options import Options


LONGEST_NAME = 100
"""Bytes of a run's name: file systems take 255, and some files are named after a run."""


def check_name(name: str) -> None:
    """Refuse a run name that would leave the results folder, or that a terminal or a shell would misread.

    Raises:
        LabError: Names what is wrong with it.
    """
    problems = {
        "is empty": not name.strip(),
        f"is longer than {LONGEST_NAME} bytes": len(name.encode(errors="replace")) > LONGEST_NAME,
        "has a slash: a run is one folder below results/<lab>/, and --results chooses another place": "/" in name,
        "has a control character or one that cannot be printed": not name.isprintable(),
        "begins with a dot or a dash": name.startswith((".", "-")),
        "begins or ends with a space": name != name.strip(),
    }
    if wrong := next((problem for problem, found in problems.items() if found), ""):
        raise LabError(f"--name {quoted(name)} {wrong}; choose letters, digits, '-', '_' and '.', as in --name night-1")


def results_root(options: Options) -> Path:
    """Return the results store of a run."""
    return Path(options.results) if options.results else results_dir()


def run_name(options: Options, runs: Path, workers: int) -> str:
    """Return the name of the run's folder under `runs`: asked for, or the one to resume, or a new one."""
    return options.name or (options.resume and _unfinished(runs)) or _new(runs, workers)


def _new(runs: Path, workers: int) -> str:
    """Name a run by its second; a small run may have begun and ended in the same one."""
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-w{workers}"
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(name for name in names if not (runs / name).exists())


def _unfinished(runs: Path) -> str | None:
    """Return the newest run that has a checkpoint and no record."""
    saved = [path for path in runs.glob("*/checkpoints/*.npz") if not (path.parents[1] / "record.json").exists()]
    return max(saved, key=lambda path: path.stat().st_mtime).parents[1].name if saved else None
