"""The Lab record: what a lab module declares, for the commands that list, run, sweep and report it."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labs.run import naming

if TYPE_CHECKING:
    from labs.run.options import Options
    from labs.run.sweeps import Sweep


def _no_check(config: Any, workers: int) -> None:
    pass


def _never(config: Any) -> bool:
    return False


def _mpirun(config: Any, workers: int, folder: Path) -> list[str] | None:
    return None


@dataclasses.dataclass(frozen=True, eq=False)
class Lab:
    """A lab. Each lab module ends its declarations with one: `LAB = Lab(Config, PRESETS, run)`.

    Name and description are taken from the module in which Config is defined.
    """

    Config: type
    """A frozen dataclass: what a student may change. Its fields become options, their docstrings the help."""
    presets: Mapping[str, Any]
    """Configs by name; "demo" holds the defaults, "paper" the settings of the published report."""
    run: Callable[[Any, Options], dict[str, Any]]
    """Runs the experiment as one worker, and returns the run's record."""
    sweeps: Mapping[str, Sequence[Sweep]] = dataclasses.field(default_factory=dict)
    """Sweeps by preset: the runs that the lab's questions need."""
    data_set: str = ""
    """The data set of its --data, by its name in the registry."""
    check: Callable[[Any, int], None] = _no_check
    """Raises LabError for a Config that cannot run on this number of workers, before anything is started."""
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Environment variables of this lab that must be set before TensorFlow loads."""
    one_worker: Callable[[Any], bool] = _never
    """Whether a Config's experiment runs on one worker only."""
    launcher: Callable[[Any, int, Path], list[str] | None] = _mpirun
    """Returns the command that starts the workers, from Config, number of workers and run folder; None: mpirun."""

    @property
    def name(self) -> str:
        """The lab's name, such as "lab10_caltech"."""
        return naming.lab_name(self.Config)

    @property
    def module(self) -> str:
        """The module that `python -m` runs, such as "labs.lab10_caltech"."""
        return self.Config.__module__

    @property
    def description(self) -> str:
        """The module's docstring, with the lines after the title indented: the command line keeps their breaks."""
        # Since Python 3.13 the compiler removes the indentation that all these lines have in common.
        title, _, commands = inspect.cleandoc(sys.modules[self.module].__doc__ or "").partition("\n\n")
        return f"{title}\n\n{textwrap.indent(commands, '    ')}\n"

    @property
    def title(self) -> str:
        """The first line of the docstring."""
        return self.description.partition("\n")[0]
