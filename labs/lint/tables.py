"""Rows of figures as lint's rules compare them: of records, and of CSV tables with the columns of `COLUMNS`."""

import contextlib
import csv
import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any

from labs.results import ledger, noise, records
from labs.run import command_line
from labs.run.errors import LabError, quoted

TEXTS = ("part", "experiment", "model", "data", "device")
SETTINGS = ("workers", "nodes", "processes_per_node", "threads_per_process", "batch_size_per_worker",
            "global_batch_size", "learning_rate", "seed", "images", "epochs", "epoch", "steps", "link_gb_per_sec")
FIGURES = ("images_per_sec", "seconds_per_epoch", "train_seconds", "total_seconds", "speedup", "scaling_efficiency",
           "accuracy", "train_accuracy", "test_accuracy", "train_loss", "input_seconds", "compute_seconds",
           "communication_seconds", "other_seconds", "bandwidth_gb_per_sec", "forward_bytes", "backward_bytes",
           "allreduce_bytes")
COLUMNS = (*TEXTS, *SETTINGS, *FIGURES)
"""The columns that a table may have."""
MEANINGS = """\
part and experiment may hold any words; model, data and device have to agree in a comparison, device is cpu or a GPU.
workers are all workers, as hvd.size() counts them, images those of an epoch, learning_rate that after scaling.
steps are those of the whole run; of one epoch if there is no column epochs.
images_per_sec is that of all workers, seconds_per_epoch without the first epoch, total_seconds with start-up.
speedup is throughput(n) / throughput(1), scaling_efficiency speedup / n; accuracies are 0 to 1.
input, compute, communication and other are the parts of seconds_per_epoch.
bandwidth_gb_per_sec is that of the exchange (busbw), link_gb_per_sec what the link can carry, both in GB/s."""
RENAMED = {"workers": "size", "batch_size_per_worker": "batch_size"}
"""Columns that records call otherwise."""
ALIKE = ("model", "data", "device", "threads_per_process", "epochs")  # They must agree in a comparison.
SPEEDS = ("images_per_sec", "seconds_per_epoch", "train_seconds", "total_seconds")
"""The columns from which a speedup can be computed, the best first."""


class Row(dict[str, Any]):
    """A record, or a line of a table, by the columns of `COLUMNS`.

    Figures are attributes, such as `row.speedup`: NaN, with which every comparison is false, if there is none. Also
    `where`, the run or the file; `line`, in a file, or 0; `settings`, whatever has to agree in a comparison apart from
    the batch size, as text; and what follows from the cells.
    """

    def __init__(self, cells: dict[str, Any]):
        super().__init__(cells)
        unit = "node" if {"size", "processes_per_node"}.isdisjoint(self) else "worker"
        self["size"] = size = _first(self.size, self.nodes * _first(self.processes_per_node, 1.0))
        self["batch"] = _first(self.batch_size, self.global_batch_size / _first(size, 1.0))
        self["global_batch"] = _first(self.global_batch_size, self.batch_size * size)
        self["workers"] = f"{text(size)} {unit}{'s' * (size != 1)}" if size > 0 else "an unknown number of workers"
        self["place"] = f"line {self['line']}" if self["line"] else self["where"]

    def __getattr__(self, name: str) -> float:
        cell = self.get(name)
        return float(cell) if isinstance(cell, int | float) and math.isfinite(cell) else math.nan

    def throughput(self, by: str) -> float:
        """Return the throughput, in any unit, from one of the columns `SPEEDS`; NaN if it has none."""
        figure = _first(self.__getattr__(by))
        return figure if by == "images_per_sec" else _first(self.images, 1.0) / figure

    def agree(self, *free: str) -> Hashable:
        """Return the settings that must agree in a comparison, apart from some."""
        return tuple((name, setting) for name, setting in self["settings"].items() if name not in free)


def _first(*figures: float) -> float:
    """Return the first figure above 0; NaN if there is none."""
    return next((figure for figure in figures if figure > 0), math.nan)


def text(figure: float) -> str:
    """Write a number with few digits."""
    if not math.isfinite(figure):
        return "?"
    return f"{figure:,.0f}" if figure == int(figure) or abs(figure) >= 1000 else f"{figure:.4g}"


def group(items: Iterable, by: Callable[[Any], Hashable]) -> list[list]:
    """Return items in groups, in the order of the groups' first items."""
    groups: dict[Hashable, list] = {}
    for item in items:
        groups.setdefault(by(item), []).append(item)
    return list(groups.values())


def measured_by(rows: Iterable[Row]) -> str:
    """Return the column from which the speedups of some rows follow best."""
    return next((by for by in SPEEDS if sum(row.size * row.throughput(by) > 0 for row in rows) > 1), SPEEDS[0])


def families(rows: Iterable[Row], by: str) -> Iterator[tuple[list[Row], list[Row]]]:
    """Yield the rows of each number of workers and nodes, behind the rows of their base.

    The base is the fewest workers of the same settings, with the batch per worker or with the global batch.
    """
    def shape(row: Row) -> tuple[float, float]:
        return row.size, _first(row.nodes, 1.0)

    timed = sorted((row for row in rows if row.throughput(by) > 0 and row.size > 0), key=shape)
    bases: dict[Hashable, list[Row]] = {}
    for row in timed:
        for constant in _constants(row):
            base = bases.setdefault(constant, [])
            base += [row] * (not base or shape(base[0]) == shape(row))
    for cell in group(timed, lambda row: (*_constants(row), shape(row))):
        yield min((bases[constant] for constant in _constants(cell[0])), key=lambda base: base[0].size), cell


def _constants(row: Row) -> tuple[Hashable, Hashable]:
    """Return what a weak and a strong scaling hold constant; as text, in which a NaN equals a NaN."""
    return (row.agree(), f"weak {row.batch}"), (row.agree(), f"strong {row.global_batch}")


def from_records(runs: list[records.Record]) -> list[Row]:
    """Return records as rows."""
    computed_on = records.computed_on(runs)
    names = dict.fromkeys(name for run in runs for name in run["config"] if name not in ("seed", "batch_size"))
    rows = []
    for index, run in enumerate(runs):
        config, layout, last = run["config"], run["layout"], run["history"][-1] if run["history"] else {}
        gpus, parts = run["machine"].get("gpus"), ledger.read(run["metrics"])
        rows.append(Row({
            "where": f"{run['lab']}/{run['run']}", "line": 0,
            "settings": {"lab": run["lab"], **{name: str(config.get(name, "")) for name in names},
                         **{name: values[index] for name, values in computed_on.items()}},
            "size": layout["size"], "nodes": layout["nodes"], "global_batch_size": layout["global_batch_size"],
            "batch_size": config.get("batch_size"), "learning_rate": config.get("base_lr"), "seed": config.get("seed"),
            "device": " ".join(gpus) if gpus else "cpu" if gpus == [] else "",
            "images": last.get("images"), "steps_per_epoch": last.get("steps"), "clocks": _clocks(run),
            "images_per_sec": run["timings"]["images_per_sec"], "asked": _asked(run),
            "bandwidth_gb_per_sec": run["metrics"].get("busbw_gb_per_sec"), "seconds_per_epoch": parts.get("wall"),
            "disturbed": noise.disturbance(run), "warning": noise.warning(run),
            **{f"{part}_seconds": seconds for part, seconds in parts.items()},
        }))
    return rows


def _asked(run: records.Record) -> int:
    """Return the workers that were asked for, by the name that `labs run` and `labs sweep` give to a run, or 0."""
    name = re.match(r"(?:\d{8}-\d{6}|sweep)-w(\d+)", run["run"])
    return int(name[1]) if name else 0


def _clocks(run: records.Record) -> tuple[float, ...]:
    """Return the seconds of a run's epochs; none of a search or an elastic run, which have those of other runs."""
    searched = {"events", "trials"} & run.get("tables", {}).keys()
    return () if searched else tuple(row["train_seconds"] for row in run["history"] if row.get("train_seconds"))


def read(path: Path) -> list[Row]:
    """Read a typed table.

    Raises:
        LabError: It cannot be read, or has an unknown column, a text for a number, or no figure.
    """
    names, lines = _lines(path)
    for unknown in (name for name in names if name not in COLUMNS):
        similar = command_line.suggestion(unknown, COLUMNS)
        raise LabError(f"{path.name}: unknown column {quoted(unknown)}{similar}; fill in "
                       f"the table that `labs lint --template` prints; known are {', '.join(COLUMNS)}")
    if not any(cells.get(name) for name in FIGURES for cells in lines.values()):
        raise LabError(f"{path.name} holds no figures to check; give at least one of {', '.join(FIGURES)}")
    rows = []
    for line, texts in lines.items():
        place = f"{path.name}, line {line}"
        cells: dict[str, Any] = {RENAMED.get(name, name): cell if name in TEXTS else _number(place, name, cell)
                                 for name, cell in texts.items() if cell}
        rows.append(Row(cells | {
            "where": path.name, "line": line, "settings": {name: str(cells.get(name, "")) for name in ALIKE},
            "steps_per_epoch": cells.get("steps", math.nan) / max(1.0, cells.get("epochs", 1.0))}))
    return rows


def _lines(path: Path) -> tuple[list[str], dict[int, dict[str, str]]]:
    """Return the column names of a file, and the cells of its lines that are not empty, by line and column."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            names, *lines = csv.reader(file, skipinitialspace=True)
    except OSError as problem:
        raise LabError(f"{path}: {problem.strerror}; give a results folder, which `labs run lab10_caltech` makes, or "
                       "a CSV file") from None
    except (ValueError, csv.Error):
        raise LabError(f"{path.name} is not a table; save it as CSV in UTF-8, with commas between the cells") from None
    found = {}
    for number, cells in ((number, cells) for number, cells in enumerate(lines, 2) if any(cells)):
        if len(cells) != len({*names}):  # Cells may have shifted.
            raise LabError(f"{path.name}, line {number}: {len(cells)} cells under {len({*names})} columns; leave no "
                           "cell out, name no column twice, and write decimal points, not commas")
        found[number] = dict(zip(names, cells, strict=True))
    return [name for name in names if any(cells[name] for cells in found.values())], found


def _number(place: str, name: str, cell: str) -> float:
    """Return a cell as a number, at least 0; an accuracy is at most 1."""
    low, high = -math.inf if name == "train_loss" else 0.0, 1.0 if name.endswith("accuracy") else math.inf
    with contextlib.suppress(ValueError):
        number = float(cell)
        if math.isfinite(number) and low <= number <= high:
            return number
    raise LabError(f"{place}: {name} {quoted(cell)} is not a number from {low:g} to {high:g}; write a decimal point "
                   "and no unit, 0.91 for 91 %, or leave the cell empty")
