"""The labs of this clone: what a lab module declares, and how to find one by its number or name."""

import dataclasses
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from labs.run import fields
from labs.run.errors import LabError, quoted
from labs.run.fields import Options
from labs.run.paths import ROOT


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


@dataclasses.dataclass(frozen=True, eq=False)
class Lab:
    """A lab. Each lab module ends its declarations with one: `LAB = Lab(Config, PRESETS, run)`."""

    Config: type
    """A frozen dataclass: what a student may change. Its fields become options. Its module's docstring is the help."""
    presets: Mapping[str, Any]
    """Configs by name; "demo" has the defaults, "paper" has the published report's settings."""
    run: Callable[[Any, Options], dict[str, Any]]
    """Runs the experiment as one worker, and returns the run's record."""
    sweeps: Mapping[str, Sequence[Sweep]] = dataclasses.field(default_factory=dict)
    """Sweeps by preset: the runs that the lab's questions need."""
    data_set: str = ""
    """The data set of its --data, by its name in the registry."""
    check: Callable[[Any, int], None] = lambda config, workers: None
    """Raises LabError for a Config that cannot run, before anything is started."""
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Environment variables of this lab that must be set before TensorFlow loads."""
    one_worker: Callable[[Any], bool] = lambda config: False
    """Whether a Config's experiment runs on one worker only."""
    launcher: Callable[[Any, int, Path], list[str] | None] = lambda config, workers, folder: None
    """Returns the command that starts the workers, from Config, number of workers and run folder; None: mpirun."""

    def refuse(self, config: Any, workers: int) -> None:
        """Raise LabError if a Config cannot run on this number of workers."""
        if workers > 1 and self.one_worker(config):
            raise LabError(f"{self.name} runs on one worker with these options; add --workers 1")
        self.check(config, workers)

    @property
    def name(self) -> str:
        """The lab's name, such as "lab10_caltech"."""
        return fields.lab_name(self.Config)

    @property
    def module(self) -> str:
        """The module that `python -m` runs, such as "labs.lab10_caltech"."""
        return self.Config.__module__

    @property
    def description(self) -> str:
        """The module's docstring."""
        return inspect.cleandoc(sys.modules[self.module].__doc__ or "")

    @property
    def title(self) -> str:
        """The first line of the docstring."""
        return self.description.partition("\n")[0]


def lab_names() -> list[str]:
    """Return the names of the labs in this clone, by number."""
    return sorted(path.stem for path in (ROOT / "labs").glob("lab[0-9][0-9]_*.py"))


def load_lab(lab: str | ModuleType | Lab) -> Lab:
    """Return the Lab of a name, a number, a unique prefix or a module."""
    if isinstance(lab, Lab):
        return lab
    return (importlib.import_module(f"labs.{resolve(lab)}") if isinstance(lab, str) else lab).LAB


def resolve(name: str) -> str:
    """Return the full name of a lab from its number ("lab2", "02", "2") or a unique prefix; do not import the lab."""
    number = re.fullmatch(r"(?:lab)?([0-9]+)", name)  # Exactly: "lab1" is no prefix of "lab10".
    begin = f"lab{int(number[1]):02}_" if number else name
    matches = [lab for lab in lab_names() if lab.startswith(begin)]
    if len(matches) != 1:
        raise LabError(f"unknown lab {quoted(name)}; there are: {', '.join(matches or lab_names())}")
    return matches[0]
