"""What cannot be right in a table of results, named row by row.

    labs lint                     the results store
    labs lint RESULTS FILE.csv    another store, and tables that were typed

The rules are in `labs/report/rules.py`. A table says with its columns what it is about; those that lint knows are in
COLUMNS and SYNONYMS. What it cannot judge for want of a column, it leaves alone.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from labs.errors import LabError
from labs.report import records
from labs.report.findings import Finding, Table

SYNONYMS = {
    "size": "workers gpus num_workers n_workers num_gpus n_gpus np processes ranks",
    "batch_size": "batch batch_size_per_worker batch_size_per_gpu batch_per_worker batch_per_gpu bs",
    "global_batch_size": "global_batch effective_batch_size effective_batch total_batch_size",
    "threads": "threads_per_process threads_per_worker",
    "processes_per_node": "ntasks_per_node gpus_per_node workers_per_node local_size",
    "learning_rate": "lr scaled_lr",
    "images_per_sec": "images_per_second images_s images_sec imgs_s img_per_sec imgs_per_sec throughput",
    "epoch_seconds": "seconds_per_epoch time_per_epoch epoch_time epoch_time_seconds s_per_epoch",
    "train_seconds": "training_seconds train_time training_time train_time_seconds",
    "total_seconds": "total_time total_time_seconds",
    "scaling_efficiency": "efficiency",
    "compute_seconds": "compute_time computation_seconds",
    "communication_seconds": "comm_seconds comm_time communication_time allreduce_seconds",
    "input_seconds": "input_time data_seconds loader_seconds data_loading_seconds",
    "other_seconds": "residual_seconds rest_seconds other_time",
    "bandwidth": "bandwidth_gb_per_sec bandwidth_gb_s gb_per_sec bus_bandwidth_gb_per_sec busbw_gb_per_sec",
    "link": "link_gb_per_sec link_bandwidth_gb_per_sec peak_bandwidth_gb_per_sec",
    "test_accuracy": "accuracy val_accuracy validation_accuracy",
    "images": "training_images train_images images_per_epoch",
}
COLUMNS = {
    *SYNONYMS, "nodes", "epochs", "steps", "steps_per_epoch", "seed", "repeats", "speedup", "gradient_bytes",
    "parameters", "test_images", "link_gbit_per_sec", "train_accuracy", "train_loss", "test_loss",
}
KNOWN = {name: column for column, names in SYNONYMS.items() for name in names.split()}
LABELS = {"run", "part", "source", "question", "name", "note", "notes", "comment", "experiment", "lab", "date", "rule",
          "scaling", "scaling_rule"}
"""Columns that describe a row and are no part of its configuration."""
COURSE: dict[str, dict[str, Any]] = {
    "lab02_mnist_accuracy": {"images": 60_000, "test_images": 10_000},  # MNIST
    "lab04_speedup": {"images": 50_000, "gradient_bytes": 44.7e6},  # CIFAR-10, ResNet-18
    "lab07_transported_bytes": {"images": 60_000},  # MNIST
}
"""What the course reports' tables do not say of themselves; columns of these names say it in any other table."""


def check(paths: list[Path]) -> Iterator[Finding | LabError]:
    """Yield what is wrong in result stores and tables; a path that cannot be read yields its LabError.

    Args:
        paths: Folders of results, and CSV files.
    """
    for path in paths:
        try:
            yield from check_store(path) if path.is_dir() else check_csv(path)
        except LabError as problem:
            yield problem


def check_csv(path: Path) -> list[Finding]:
    """Return what is wrong in a table that somebody typed.

    Raises:
        LabError: It cannot be read, is empty, or has no column that lint knows.
    """
    from labs.report import rules

    return rules.judge(read_csv(path), rules.TYPED)


def check_store(root: Path) -> list[Finding]:
    """Return what is wrong in the records of a results store; those that are no records are named and left out."""
    from labs.report import rules

    with records.uncollected():
        found = records.read_all(root=root)
        if not found:
            raise LabError(f"{root} holds no record; `labs run lab10_caltech --workers 2` makes one")
        return rules.judge(recorded(found), rules.RECORDED)


def recorded(found: list[records.Record]) -> Table:
    """Return records as the rules want them: as `records.flat`, and what the history knows."""
    rows, apart = [], records.computed_on(found)
    for place, record in enumerate(found):
        last = record["history"][-1] if record["history"] else {}
        about = {"row": 0, "where": f"{record['lab']}/{record['run']}"}
        about |= {"images": last.get("images"), "steps_per_epoch": last.get("steps")}
        rows.append(records.flat(record) | about | {name: values[place] for name, values in apart.items()})
    config = {name: None for record in found for name in records.settings(record) if name != "seed"} | apart
    return Table(rows, frozenset().union(*rows), ("lab", *config))


def read_csv(path: Path) -> Table:
    """Read a typed table: columns by the names that the rules use, numbers as numbers, `row` the line in the file.

    Raises:
        LabError: It cannot be read, is empty, has no column that lint knows, or words where numbers belong.
    """
    lines = _lines(path)
    head = _heading(lines[0][1])
    if not set(head) & COLUMNS and not any(_measured(name) for name in head):
        raise LabError(f"{path.name}: no column that can be checked ({', '.join(lines[0][1])}); known are workers, "
                       "batch_size, epoch_seconds, images_per_sec, speedup and others (labs/report/lint.py)")
    course = COURSE.get(path.stem, {})
    rows = [course | {"row": number, "where": path.name} | _cells(path, number, head, cells)
            for number, cells in lines[1:]]
    # A column in which no value comes twice tells rows apart that would be compared: it was measured, too.
    varying = {name for name in head if len({row[name] for row in rows}) == len(rows)}
    config = tuple(name for name in head if _chosen(name) and name not in varying - COLUMNS)
    return Table(rows, frozenset((*head, *course)), config)


def _lines(path: Path) -> list[tuple[int, list[str]]]:
    """Return the lines of a CSV that hold something, with their numbers; the first is the heading."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            text = file.read()
            between = max(",;\t", key=text.partition("\n")[0].count)
            reader = csv.reader(text.splitlines(), delimiter=between)
            lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader]
    except OSError as problem:
        raise LabError(f"{path}: {problem.strerror}; give a results folder or a CSV file") from None
    except (UnicodeDecodeError, csv.Error) as problem:
        raise LabError(f"{path.name} is no table of text: {problem}; save it as CSV in UTF-8") from None
    lines = [(number, cells) for number, cells in lines if any(cells)]
    if len(lines) < 2:
        raise LabError(f"{path.name} holds no rows; its first line names the columns, the others are the results")
    return lines


def _heading(names: list[str]) -> list[str]:
    """Return the rules' names of the columns; a second one of the same meaning is only a label."""
    head: list[str] = []
    for place, name in enumerate(map(_canonical, names)):
        head.append(f"label_{place}" if name in (*head, "", "row", "where") else name)
    return head


def _canonical(name: str) -> str:
    """Return the rules' name of a column: `comm_seconds_as_reported` and "Comm seconds (per epoch)" are one."""
    whole, short = (re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_").removesuffix("_as_reported")
                    for text in (name, re.sub(r"\(.*?\)", "", name)))
    return KNOWN.get(whole) or KNOWN.get(short) or (whole if whole in COLUMNS else short)


MEASURED = re.compile(
    r".*_(seconds|bytes|bytes_per_\w+|percent|low|high|std|sd|ci95|error|accuracy|loss|per_sec)"
    r"|bandwidth.*|busbw|algbw|psnr|memory.*|accuracy|loss|bytes|seconds|label_\d+"
)
NOT_CHOSEN = {
    "size", "nodes", "global_batch_size", "images_per_sec", "epoch_seconds", "train_seconds", "total_seconds", "steps",
    "steps_per_epoch", "speedup", "scaling_efficiency", "learning_rate", "seed", "repeats", "bandwidth", "link",
    "test_accuracy", "images", "test_images",
}


def _measured(name: str) -> bool:
    return bool(MEASURED.fullmatch(name))


def _chosen(name: str) -> bool:
    """Whether a column belongs to the configuration of a row: what is neither measured nor a mere label."""
    return name not in NOT_CHOSEN | LABELS and not _measured(name)


def _cells(path: Path, line: int, head: list[str], cells: list[str]) -> dict[str, float | str | None]:
    """Return one row, numbers as numbers; nothing in a cell is None.

    Raises:
        LabError: Another number of cells than of columns, or a word where a number belongs.
    """
    if len(cells) != len(head):
        raise LabError(f"{path.name}, line {line}: {len(cells)} values for {len(head)} columns; "
                       "put a value that holds a comma into quotes")
    row = {name: _number(cell) for name, cell in zip(head, cells, strict=True)}
    for name, cell in row.items():
        if isinstance(cell, str) and (name in COLUMNS or (_measured(name) and not name.startswith("label_"))):
            raise LabError(f"{path.name}, line {line}: {name} is {cell!r}, not a number; "
                           "leave a cell empty where there is no figure")
    return row


def _number(cell: str) -> float | str | None:
    try:
        number = float(cell)
    except ValueError:
        return cell or None
    return number if math.isfinite(number) else None if math.isnan(number) else cell
