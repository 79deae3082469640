"""Sweeps: the runs that a question needs, as data. `labs.launch.sweep` runs them."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from labs.run import catalogue, command_line
from labs.run.errors import LabError


def _unchanged(config: Any, workers: int) -> Any:
    return config


def _wherever(workers: int) -> int:
    return 1


@dataclasses.dataclass(frozen=True)
class Sweep:
    """The runs that one question needs, as data: a lab has `SWEEPS = {"demo": (Sweep(...), ...), "paper": ...}`."""

    name: str
    question: str
    """In one line, with the question's id: "C1: time and speedup of an epoch"."""
    grid: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)
    """Fields of the lab's Config and their values; the cells are all combinations."""
    workers: Sequence[int] = (1, 2)
    seeds: Sequence[int] = (1, 2, 3)
    """One repeat each."""
    adapt: Callable[[Any, int], Any] = _unchanged
    """Sets what depends on other values, such as batch_size = global // workers. A LabError leaves the cell out."""
    nodes: Callable[[int], int] = _wherever
    """Over how many nodes so many workers are spread, equally many on each; more than one node needs Slurm."""


def divide(config: Any, workers: int) -> Any:
    """Return a Config in which all workers together take what the Config gives one: strong scaling."""
    if config.batch_size % workers:
        raise LabError(f"a global batch of {config.batch_size} cannot be divided among {workers} workers")
    return dataclasses.replace(config, batch_size=config.batch_size // workers)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One run of a sweep."""

    lab: str
    config: Any
    workers: int
    skipped: str = ""
    """Why it cannot run on this machine."""
    nodes: int = 1
    """Over which the workers are spread; 1: wherever the sweep runs."""

    @property
    def name(self) -> str:
        """The run's name in the store: equal settings, equal name, in whatever sweep and in whatever session."""
        spread = f"-n{self.nodes}" if self.nodes > 1 else ""
        return f"sweep-w{self.workers}{spread}-seed{self.config.seed}-{command_line.config_hash(self.config)}"

    def __str__(self) -> str:
        return f"{self.workers} worker{'s' * (self.workers > 1)}, seed {self.config.seed}"


def cells(lab: ModuleType, sweeps: Sequence[Sweep], base: Any) -> list[Cell]:
    """Return the cells of some sweeps in the order of their runs, each once.

    The order is random, so that a machine that grows warm or busy does not favour one setting, and the same every time.
    All cells run once before any is repeated, so that a sweep broken off is a sweep with fewer repeats.

    Args:
        lab: The lab's module.
        sweeps: Of its SWEEPS.
        base: The Config that holds what no sweep varies.
    """
    found: dict[str, tuple[int, Cell]] = {}
    for sweep in sweeps:
        for repeat, seed in enumerate(sweep.seeds):
            for workers, values in itertools.product(sweep.workers, _combinations(sweep.grid)):
                cell = _cell(lab, sweep, dataclasses.replace(base, seed=seed, **values), workers)
                found.setdefault(cell.name, (repeat, cell))
    shuffled = sorted(found.values(), key=lambda pair: pair[1].name)
    random.Random(0).shuffle(shuffled)
    return [cell for _, cell in sorted(shuffled, key=lambda pair: pair[0])]


def _combinations(grid: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def _cell(lab: ModuleType, sweep: Sweep, config: Any, workers: int) -> Cell:
    """Return a cell; what neither the lab nor the machine can hold is marked with the reason."""
    skipped, nodes = "", sweep.nodes(workers)
    try:
        config = sweep.adapt(config, workers)
        command_line.check(config)
        if workers % nodes:
            raise LabError(f"{workers} workers cannot be spread evenly over {nodes} nodes")
    except LabError as reason:
        skipped = str(reason)
    return Cell(catalogue.lab_name(lab), config, workers, skipped, nodes)


def finished(cell: Cell, store: Path) -> bool:
    """Whether a cell has its record."""
    return (store / cell.lab / cell.name / "record.json").exists()
