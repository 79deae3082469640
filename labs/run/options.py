"""The options that every run has, whatever its lab."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from labs.run.fields import Range
from labs.run.naming import check_name


@dataclasses.dataclass(frozen=True)
class Options:
    """Where a run lives and how it is watched: nothing here changes the experiment."""

    name: str | None = None
    """Folder of the run under results/<lab>/; made from the time and the number of workers if left out."""
    results: Path | None = None
    """The results store; `results/` of the clone if left out."""
    resume: bool = False
    """Go on from the last checkpoint of the run called --name (without --name: of the newest unfinished run)."""
    stall_seconds: Annotated[float, Range(0.1, 2**20)] = 60.0
    """End the run when a worker has not moved for so long."""
    save_seconds: Annotated[float, Range(0.1, 2**40)] = 600.0
    """Save between two steps when the last checkpoint is so old; there is one after each epoch anyway."""
    timeline: bool = False
    """Write Horovod's timeline of the run (every message, with its times) beside its record; costs rank 0 a core."""
    tensorboard: bool = False
    """Log each epoch of the training for TensorBoard, beside its record."""

    def __post_init__(self):
        """Refuse a name that is no folder of its own below results/<lab>/."""
        if self.name is not None:
            check_name(self.name)


LAUNCH = {
    "workers": "Number of workers; by default one per task of the Slurm job, or one per GPU, or one.",
    "oversubscribe": "Allow more workers than cores.",
}
"""Help of the options that `labs run` takes beside a lab's own."""
