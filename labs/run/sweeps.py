"""The cells of a sweep: which runs its questions need. `labs sweep` starts them, and `labs report` finds them."""

import dataclasses
import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labs.run import fields
from labs.run.catalogue import Sweep
from labs.run.errors import LabError


@dataclasses.dataclass(frozen=True)
class Cell:
    """One run of a sweep."""

    lab: str
    config: Any
    workers: int
    nodes: int
    link: str
    skipped: str = ""
    """Why it cannot run; empty if it can."""

    @property
    def name(self) -> str:
        """The run's name. Equal settings give equal names, in every sweep and session."""
        layout = f"w{self.workers}{f'-n{self.nodes}' * (self.nodes > 1)}{f'-{self.link}' * bool(self.link)}"
        return f"sweep-{layout}-seed{self.config.seed}-{fields.config_hash(self.config)}"

    def is_finished(self, results_root: Path) -> bool:
        """Return whether the run's record has been written."""
        return (results_root / self.lab / self.name / "record.json").exists()


def cells(sweeps: Sequence[Sweep], base: Any) -> list[Cell]:
    """Return the cells of some of a lab's sweeps, without duplicates; `base` has the values that no sweep varies.

    Their order is random, so that a machine that gets warm or busy favours no setting, but the same every time. All run
    once before any is repeated, so an interrupted sweep has fewer repeats but no missing cell.
    """
    repeats: dict[Cell, int] = {}
    for sweep in sweeps:
        for (repeat, seed), workers, link, values in itertools.product(
                enumerate(sweep.seeds), sweep.workers, sweep.links, itertools.product(*sweep.grid.values())):
            config, skipped = dataclasses.replace(base, seed=seed, **dict(zip(sweep.grid, values, strict=True))), ""
            try:
                config = sweep.adapt(config, workers)
                fields.check(config)
            except LabError as reason:
                skipped = str(reason)
            cell = Cell(fields.lab_name(config), config, workers, sweep.nodes(workers), link, skipped)
            repeats.setdefault(cell, repeat)
    shuffled = sorted(repeats, key=lambda cell: cell.name)
    random.Random(0).shuffle(shuffled)
    return sorted(shuffled, key=lambda cell: repeats[cell])
