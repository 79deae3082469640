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
"""Bytes of the variables that rank 0 has broadcast, by their name in the timeline, which does not hold these sizes."""


def note_sizes(variables: Iterable[tf.Variable]) -> None:
    """Keep the sizes of variables that are broadcast."""
    # Horovod: names a broadcast by its variable, every other character than these replaced.
    SIZES.update({f"HorovodBroadcast_{re.sub('[^a-zA-Z0-9_]', '_', variable.name)}":
                  variable.shape.num_elements() * variable.dtype.size for variable in variables})


def settings(wanted: bool) -> dict[str, str]:
    """Return what Horovod must find in its environment to begin a timeline later; its writer then takes a core."""
    return {"HOROVOD_TIMELINE": "DYNAMIC"} if wanted else {}


def start(folder: Path) -> None:
    """Begin the timeline of a run; every worker calls it, rank 0 writes.

    Raises:
        LabError: Horovod was not started for it, because an earlier run of this process started it.
    """
    import horovod.tensorflow as hvd

    try:
        hvd.start_timeline(str(folder / FILE))
    except ValueError:
        raise LabError("Horovod is at work here without a timeline; start this run in a process of its own, "
                       "with `labs run ... --timeline`") from None


def stop() -> None:
    """End the timeline: what is in the file then is all of it."""
    import horovod.tensorflow as hvd

    hvd.stop_timeline()
