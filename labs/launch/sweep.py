"""Runs a sweep: its cells one after the other, each in a separate launch. Imports no TensorFlow.

The results folder is its only memory: a cell with a record is done, and all others are still to do. So a sweep
continues after any number of interruptions.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from filelock import Timeout

from labs.launch import local
from labs.run import atomic, catalogue, cluster_state, command_line, paths
from labs.run.catalogue import Lab
from labs.run.errors import LabError
from labs.run.run_lock import Lock
from labs.run.sweeps import Cell, finished
from labs.run.text import one_line

FAILED = "failed.txt"
"""The file in a run's folder that says why the run failed."""


class Unfinished(NamedTuple):
    """The cells that have no record after a sweep."""

    failed: list[Cell]
    elsewhere: list[Cell]
    """Those that another sweep is running."""

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self.failed or self.elsewhere)


def run_sweep(lab: str | ModuleType | Lab, todo: Sequence[Cell], results_root: Path,
              oversubscribe: bool = False) -> Unfinished:
    """Run the cells without a record, and return those that are still without one."""
    from tqdm import tqdm  # Here: `labs` alone loads every lab, and tqdm would take a fifth of its time.

    tqdm.monitor_interval = 0  # Its thread would only redraw the bar, and a Ctrl-C while it starts ends in a traceback.
    lab = catalogue.load_lab(lab)
    open_cells = [cell for cell in todo if not cell.skipped and not finished(cell, results_root)]
    left = Unfinished([], [])
    with tqdm(total=len(todo), initial=len(todo) - len(open_cells), desc=lab.name, unit="run",
              file=sys.stderr, smoothing=0, dynamic_ncols=True) as bar:
        for cell in open_cells:
            paths.check_working_folder()  # Otherwise each cell would fail because of it.
            bar.set_postfix_str(str(cell))
            try:
                if cause := _run(lab, cell, results_root, oversubscribe):
                    left.failed.append(cell)
                    bar.write(f"failed: {cell}: {one_line(cause)}", file=sys.stderr)
            except Timeout:
                left.elsewhere.append(cell)
                bar.write(f"running elsewhere: {cell}: another sweep is running it", file=sys.stderr)
            bar.update()
    return Unfinished(left.failed, [cell for cell in left.elsewhere if not finished(cell, results_root)])


def _run(lab: Lab, cell: Cell, results_root: Path, oversubscribe: bool) -> str:
    """Run one cell with its output in a log file, and return the cause if it fails.

    Raises:
        Timeout: Another sweep is running it.
    """
    folder = results_root / cell.lab / cell.name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _lock(cell, results_root).hold():
        if finished(cell, results_root):
            return ""
        shutil.rmtree(folder, ignore_errors=True)  # Files of an earlier attempt would mix two runs' timings.
        folder.mkdir()
        arguments = [*command_line.to_argv(cell.config), "--name", cell.name, "--results", str(results_root)]
        try:
            with open(folder / "log.txt", "w") as log, _set_links(cell.link):
                local.run(lab, arguments, cell.workers, oversubscribe, log)
        except LabError as cause:
            atomic.write_text(folder / FAILED, f"{cause}\n")
            return str(cause)
    return ""


def _lock(cell: Cell, results_root: Path) -> Lock:
    return Lock(results_root / cell.lab / f".{cell.name}.lock")


def runs_elsewhere(cell: Cell, results_root: Path) -> bool:
    """Return whether another sweep is running a cell."""
    return _lock(cell, results_root).is_held()


@contextlib.contextmanager
def _set_links(bandwidth: str) -> Iterator[None]:
    """Set the links of the cluster during a cell."""
    if not bandwidth:
        yield
        return
    with cluster_state.restored():
        cluster_state.set_bandwidth(bandwidth)
        yield
