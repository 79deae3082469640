"""Horovod's timeline: every message of a run, as rank 0 saw it, in a file for Perfetto (ui.perfetto.dev)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from labs.run.errors import LabError

if TYPE_CHECKING:
    import tensorflow as tf

FILE = "timeline.json"
SIZES: dict[str, int] = {}
"""Bytes of the variables that rank 0 has broadcast, by their name in the timeline, which leaves these sizes out."""


def note_sizes(variables: Iterable[tf.Variable]) -> None:
    """Record the sizes of variables that are broadcast."""
    # Horovod: names a broadcast after its variable, with all other characters replaced.
    SIZES.update({f"HorovodBroadcast_{re.sub('[^a-zA-Z0-9_]', '_', variable.name)}":
                  variable.shape.num_elements() * variable.dtype.size for variable in variables})


def start(folder: Path) -> None:
    """Start the timeline of a run; every worker calls it, rank 0 writes the file.

    Raises:
        LabError: An earlier run of this process has started Horovod without a timeline.
    """
    import horovod.tensorflow as hvd

    try:
        hvd.start_timeline(str(folder / FILE))
    except ValueError:
        raise LabError("Horovod was started without a timeline in this process; start this run in a new process, "
                       "with `labs run ... --timeline`") from None


def stop() -> None:
    """End the timeline and close its file."""
    import horovod.tensorflow as hvd

    hvd.stop_timeline()
