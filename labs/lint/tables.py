"""Typed tables of results: CSV files with the columns of `COLUMNS`, which `labs lint --template` prints."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from labs.lint.rows import Row
from labs.run import usage
from labs.run.errors import LabError, quoted

if TYPE_CHECKING:
    import pandas as pd

TEXTS = {
    "part": "any words about the row; they are not compared",
    "experiment": "what the rows show together, such as: strong scaling",
    "model": "the network, such as: ResNet50",
    "data": "the data set",
    "device": "cpu, or the GPU, such as: H100",
}
SETTINGS = {
    "workers": "all workers, as hvd.size() counts them",
    "nodes": "the nodes on which they ran",
    "processes_per_node": "the workers on each node",
    "threads_per_process": "threads of each worker",
    "batch_size_per_worker": "images of one step of one worker",
    "global_batch_size": "images of one step of all workers",
    "learning_rate": "as used, after any scaling",
    "seed": "where a setting ran several times",
    "images": "training images of an epoch",
    "epochs": "epochs of the run",
    "epoch": "the epoch of this row's figures",
    "steps": "steps of the whole run; of one epoch if there is no column epochs",
    "gradient_bytes": "bytes of all gradients: 4 per parameter",
    "link_gb_per_sec": "what the link between the workers can carry, GB/s",
}
FIGURES = {
    "images_per_sec": "of all workers",
    "seconds_per_epoch": "without the first epoch",
    "train_seconds": "of all epochs",
    "total_seconds": "of the whole run, with start-up",
    "speedup": "throughput(n) / throughput(1)",
    "scaling_efficiency": "speedup / n",
    "accuracy": "share of right answers, 0 to 1, on images that the source does not name",
    "train_accuracy": "on the training images",
    "test_accuracy": "on the test images",
    "train_loss": "on the training images",
    "input_seconds": "part of seconds_per_epoch: waiting for data",
    "compute_seconds": "part of seconds_per_epoch: forward and backward pass",
    "communication_seconds": "part of seconds_per_epoch: exchange of gradients",
    "other_seconds": "part of seconds_per_epoch: the rest",
    "bandwidth_gb_per_sec": "of the exchange, GB/s (busbw)",
    "forward_bytes": "bytes that were sent in the forward pass",
    "backward_bytes": "bytes that were sent in the backward pass",
    "allreduce_bytes": "bytes that the all-reduce sent",
}
COLUMNS = TEXTS | SETTINGS | FIGURES
"""The columns that a table may have, with their meanings and units."""

RENAMED = {"workers": "size", "batch_size_per_worker": "batch_size"}
"""Columns that records call otherwise."""
ALIKE = ("model", "data", "device", "threads_per_process", "epochs")
"""The columns that must agree in a comparison."""


def read(path: Path) -> list[Row]:
    """Read a typed table.

    Raises:
        LabError: It cannot be read, or has an unknown column, a text for a number, or no figure.
    """
    frame = _frame(path)
    if unknown := [name for name in frame if name not in COLUMNS]:
        similar = usage.suggestion(unknown[0], COLUMNS)
        raise LabError(f"{path.name}: unknown column {quoted(unknown[0])}{similar}; fill in the table that `labs lint "
                       f"--template` prints; known are {', '.join(COLUMNS)}")
    if not FIGURES.keys() & set(frame):
        raise LabError(f"{path.name} holds no figures to check; give at least one of {', '.join(FIGURES)}")
    for name in frame.columns.difference(list(TEXTS)):
        frame[name] = _numbers(path, frame[name])
    return [_row(path, line, row) for line, row in frame.rename(columns=RENAMED).to_dict("index").items()]


def _row(path: Path, line: Any, cells: dict[Any, Any]) -> Row:
    """Return a line of a file as a row: its cells that are not empty."""
    row = Row({name: cell for name, cell in cells.items() if cell == cell}, where=path.name, line=line)
    row["steps_per_epoch"] = row.steps / max(1.0, row.get("epochs", 1.0))
    row["settings"] = {name: str(row.get(name, "")) for name in ALIKE}
    return row


def _frame(path: Path) -> pd.DataFrame:
    """Return the cells of a file as text, by the line."""
    import pandas as pd

    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            head, *lines = csv.reader(file, skipinitialspace=True)
    except OSError as problem:
        raise LabError(f"{path}: {problem.strerror}; give a results folder, which `labs run lab10_caltech` makes, or "
                       "a CSV file") from None
    except (ValueError, csv.Error):
        raise LabError(f"{path.name} is not a table; save it as CSV in UTF-8, with commas between the cells") from None
    if len({*head}) < len(head):
        raise LabError(f"{path.name}: the column {quoted(max(head, key=head.count))} stands there twice; remove one")
    if len(head) == 1 and (";" in head[0] or "\t" in head[0]):
        raise LabError(f"{path.name}: no commas between the cells; save it as CSV with commas")
    for number, cells in enumerate(lines, 2):  # Cells may have shifted.
        if any(cells) and len(cells) != len(head):
            raise LabError(f"{path.name}, line {number}: {len(cells)} cells under {len(head)} columns; leave no cell "
                           "out, and write decimal points, not commas")
    rows = {number: dict(zip(head, cells, strict=True)) for number, cells in enumerate(lines, 2) if any(cells)}
    frame = pd.DataFrame.from_dict(rows, orient="index", columns=head)
    return frame.replace("", None).dropna(axis="columns", how="all")


def _numbers(path: Path, cells: pd.Series) -> pd.Series:
    """Return a column as numbers; NaN where a cell is empty."""
    import pandas as pd

    numbers = pd.to_numeric(cells, errors="coerce").astype(float)
    limits = -math.inf if cells.name == "train_loss" else 0, 1 if str(cells.name).endswith("accuracy") else math.inf
    for problem, wrong in {
        "is not a number; write it with a decimal point and without a unit": ~np.isfinite(numbers),
        "is below 0; write what was measured": numbers < limits[0],
        "is above 1; write 0.91 for 91 %": numbers > limits[1],
    }.items():
        for line, cell in cells[cells.notna() & wrong].items():
            raise LabError(f"{path.name}, line {line}: {cells.name} {quoted(cell)} {problem}, or leave the cell empty")
    return numbers
