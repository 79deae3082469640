"""Sweeps as data: the grid of runs that a question needs. `labs sweep` runs them."""

import dataclasses
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from labs.run import fields
from labs.run.errors import LabError


@dataclasses.dataclass(frozen=True)
class Sweep:
    """The runs that one question needs. A lab lists its sweeps by preset: `{"demo": (Sweep(...), ...), ...}`."""

    name: str
    question: str
    """One line that begins with the question's id: "C1: time and speedup of an epoch"."""
    grid: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)
    """Values by field of the lab's Config; the cells are all combinations."""
    workers: Sequence[int] = (1, 2)
    seeds: Sequence[int] = (1, 2, 3)
    """One repeat per seed."""
    adapt: Callable[[Any, int], Any] = lambda config, workers: config
    """Sets fields that depend on others, such as batch_size = global // workers. A LabError skips the cell."""
    nodes: Callable[[int], int] = lambda workers: 1
    """Returns the number of nodes for a number of workers, which are spread evenly."""
    links: Sequence[str] = ("",)
    """Bandwidths to which the links of `labs cluster` are set, such as "100mbit"; empty: they stay as they are."""

    @staticmethod
    def node_per_worker(workers: int) -> int:
        """Return as many nodes as workers; a value for `nodes`."""
        return workers


def divide(config: Any, workers: int) -> Any:
    """Divide a Config's batch among the workers, so that the global batch is constant: strong scaling."""
    if config.batch_size % workers:
        raise LabError(f"a global batch of {config.batch_size} cannot be divided among {workers} workers")
    return dataclasses.replace(config, batch_size=config.batch_size // workers)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One run of a sweep; `nodes`, `link` and `workers` are those of the Sweep."""

    lab: str
    config: Any
    workers: int
    skipped: str = ""
    """Why it cannot run; empty if it can."""
    nodes: int = 1
    link: str = ""

    @property
    def name(self) -> str:
        """The run's name. Equal settings give equal names, in every sweep and session."""
        layout = f"w{self.workers}{f'-n{self.nodes}' * (self.nodes > 1)}{f'-{self.link}' * bool(self.link)}"
        return f"sweep-{layout}-seed{self.config.seed}-{fields.config_hash(self.config)}"

    def is_finished(self, results_root: Path) -> bool:
        """Return whether the run's record has been written."""
        return (results_root / self.lab / self.name / "record.json").exists()


def cells(sweeps: Sequence[Sweep], base: Any) -> list[Cell]:
    """Return the cells of some sweeps in the order in which to run them, without duplicates.

    The order is random, so that a machine that gets warm or busy favours no setting, but it is the same every time. All
    cells run once before any is repeated, so an interrupted sweep has fewer repeats but no missing cell.

    Args:
        sweeps: Some of the lab's sweeps.
        base: The Config with the values that no sweep varies.
    """
    repeats: dict[Cell, int] = {}
    for sweep in sweeps:
        for (repeat, seed), workers, link, values in itertools.product(
                enumerate(sweep.seeds), sweep.workers, sweep.links, itertools.product(*sweep.grid.values())):
            config = dataclasses.replace(base, seed=seed, **dict(zip(sweep.grid, values, strict=True)))
            repeats.setdefault(_cell(sweep, config, workers, link), repeat)
    shuffled = sorted(repeats, key=lambda cell: cell.name)
    random.Random(0).shuffle(shuffled)
    return sorted(shuffled, key=lambda cell: repeats[cell])


def _cell(sweep: Sweep, config: Any, workers: int, link: str) -> Cell:
    """Return a cell, with the reason in `skipped` if it cannot run."""
    skipped = ""
    try:
        config = sweep.adapt(config, workers)
        fields.check(config)
    except LabError as reason:
        skipped = str(reason)
    return Cell(fields.lab_name(config), config, workers, skipped, sweep.nodes(workers), link)
