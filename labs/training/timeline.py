"""Horovod's timeline: every message of a run, as rank 0 saw it, in a file for Perfetto (ui.perfetto.dev)."""

from __future__ import annotations

from pathlib import Path

from labs.errors import LabError

FILE = "timeline.json"


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
