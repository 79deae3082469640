"""The options that all labs have."""

import dataclasses
import re
from pathlib import Path
from typing import Annotated

from labs.run.errors import LabError, quoted
from labs.run.fields import Range
from labs.run.paths import results_dir


@dataclasses.dataclass(frozen=True)
class Options:
    """Where a run is stored and how it is supervised; nothing here changes the experiment."""

    name: str | None = None
    """Folder of the run below results/<lab>/; by default named after the time and the number of workers."""
    results: Path | None = None
    """The results folder; by default `results/` of the clone."""
    resume: bool = False
    """Continue from the last checkpoint of the run --name, or without --name of the newest unfinished run."""
    stall_seconds: Annotated[float, Range(0.1, 2**20)] = 60.0
    """End the run when a worker has taken no step for this many seconds."""
    save_seconds: Annotated[float, Range(0.1, 2**40)] = 600.0
    """Save between two steps when the last checkpoint is this many seconds old; each epoch also ends with one."""
    timeline: bool = False
    """Write Horovod's timeline (every message, with its times) to the run's folder; costs rank 0 a core."""
    preset: str = "demo"
    """Where the defaults of the other experiment options come from."""

    def __post_init__(self):
        if self.name is not None:
            check_name(self.name)

    @property
    def results_root(self) -> Path:
        """The folder that holds the runs of all labs."""
        return self.results or results_dir()


def check_name(name: str, option: str = "--name") -> None:
    """Refuse a name that leads outside its folder, or that a terminal or a shell would misread.

    Raises:
        LabError: The name is not allowed; the message has the option that gave it.
    """
    if not re.fullmatch(r"\w([\w .+=-]{0,98}[\w.+=-])?", name):
        raise LabError(f"{option} {quoted(name)} is not the name of one folder; choose at most 100 letters, digits, "
                       f"'-', '_' and '.', as in {option} night-1")
