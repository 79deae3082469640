"""Runs a sweep: its cells one after the other, each in a separate launch. Imports no TensorFlow.

The results folder is its only memory: a cell with a record is done, and all others are still to do. So a sweep
continues after any number of interruptions.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from labs.launch import local
from labs.run import catalogue, cluster_state, command_line, run_lock
from labs.run.catalogue import Lab
from labs.run.errors import ERROR_PREFIX, LabError
from labs.run.sweeps import Cell, finished
from labs.run.text import one_line


def run_sweep(lab: str | ModuleType | Lab, todo: Sequence[Cell], results_root: Path,
              oversubscribe: bool = False) -> list[Cell]:
    """Run the cells without a record, and return those that failed."""
    from tqdm import tqdm  # Here: `labs` alone loads every lab, and tqdm would take a fifth of its time.

    tqdm.monitor_interval = 0  # Its thread would only redraw the bar, and a Ctrl-C while it starts ends in a traceback.
    lab = catalogue.load_lab(lab)
    open_cells = [cell for cell in todo if not cell.skipped and not finished(cell, results_root)]
    failed = []
    with tqdm(open_cells, total=len(todo), initial=len(todo) - len(open_cells), desc=lab.name, unit="run",
              smoothing=0, dynamic_ncols=True) as bar:
        for cell in bar:
            bar.set_postfix_str(str(cell))
            try:
                _run(lab, cell, results_root, oversubscribe)
            except LabError as cause:
                failed.append(cell)
                bar.write(f"failed: {cell}: {one_line(cause)}", file=sys.stderr)
    return failed


def _run(lab: Lab, cell: Cell, results_root: Path, oversubscribe: bool) -> None:
    """Run one cell, unless it has a record meanwhile; its output and the cause of a failure go to its folder's log."""
    folder = results_root / cell.lab / cell.name
    if not _empty(folder):
        return
    arguments = [*command_line.to_argv(cell.config), "--name", cell.name, "--results", str(results_root)]
    with (open(folder / "log.txt", "w") as log,
          cluster_state.restore_links() if cell.link else contextlib.nullcontext()):
        try:
            if cell.link:
                cluster_state.set_bandwidth(cell.link)
            local.run(lab, arguments, cell.workers, oversubscribe, log)
        except LabError as cause:
            print(f"{ERROR_PREFIX}{cause}", file=log)
            raise


def _empty(folder: Path) -> bool:
    """Make a run's folder, or empty it; return False, and leave it, if the run has a record.

    Files of an earlier attempt would mix two runs' timings. Another sweep or a job may have run this cell meanwhile.
    """
    folder.mkdir(parents=True, exist_ok=True)
    run_lock.refuse_held(folder)
    with run_lock.run_lock(folder):
        if (folder / "record.json").exists():
            return False
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != ".lock":
                path.unlink()
    return True
