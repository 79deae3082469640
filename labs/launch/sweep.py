"""A sweep: the runs that a question needs, one after the other, each in a launch of its own.

The results store is its only memory: a cell that has a record is done, and everything else is still to do. So a sweep
that was interrupted goes on, wherever and how often it was. Imports no TensorFlow.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from filelock import Timeout

from labs.launch import local
from labs.run import atomic, command_line
from labs.run.errors import LabError
from labs.run.lab import Lab
from labs.run.lock import Lock
from labs.run.sweeps import Cell, finished
from labs.run.text import one_line

FAILED = "failed.txt"


class Unfinished(NamedTuple):
    """The cells that a sweep has left without a record."""

    failed: list[Cell]
    elsewhere: list[Cell]
    """Those that another sweep was running."""

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.failed or self.elsewhere)


def run(lab: Lab, todo: Sequence[Cell], store: Path, oversubscribe: bool = False) -> Unfinished:
    """Run the cells that have no record yet, and return those that still have none.

    Args:
        lab: The lab's module.
        todo: Cells, in their order.
        store: The results store.
        oversubscribe: Allow more workers than cores.
    """
    from tqdm import tqdm  # Here: `labs list` loads every lab, and would spend a fifth of its time on it.

    open_cells = [cell for cell in todo if not cell.skipped and not finished(cell, store)]
    left = Unfinished([], [])
    with tqdm(total=len(todo), initial=len(todo) - len(open_cells), desc=lab.name, unit="run",
              file=sys.stderr, smoothing=0) as bar:
        for cell in open_cells:
            bar.set_postfix_str(str(cell))
            try:
                if cause := _run(lab, cell, store, oversubscribe):
                    left.failed.append(cell)
                    bar.write(f"failed: {cell}: {one_line(cause)}", file=sys.stderr)
            except Timeout:
                left.elsewhere.append(cell)
                bar.write(f"running elsewhere: {cell}: another sweep has it", file=sys.stderr)
            bar.update()
    return Unfinished(left.failed, [cell for cell in left.elsewhere if not finished(cell, store)])


def _run(lab: Lab, cell: Cell, store: Path, oversubscribe: bool) -> str:
    """Run one cell, what it prints going to its log, and return the cause should it fail.

    Raises:
        Timeout: Another sweep is running it.
    """
    folder = store / cell.lab / cell.name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _lock(cell, store).hold():
        return "" if finished(cell, store) else _launch(lab, cell, folder, oversubscribe)


def _lock(cell: Cell, store: Path) -> Lock:
    return Lock(store / cell.lab / f".{cell.name}.lock")


def runs_elsewhere(cell: Cell, store: Path) -> bool:
    """Whether another sweep is running a cell."""
    return _lock(cell, store).is_held()


def _launch(lab: Lab, cell: Cell, folder: Path, oversubscribe: bool) -> str:
    """Launch one cell in an empty folder: what an earlier try left behind would mix two runs' timings."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    arguments = [*command_line.to_argv(cell.config), "--name", cell.name, "--results", str(folder.parent.parent)]
    try:
        with open(folder / "log.txt", "w") as log:
            local.run(lab, arguments, cell.workers, oversubscribe, log)
    except LabError as cause:
        atomic.write_text(folder / FAILED, f"{cause}\n")
        return str(cause)
    return ""
