"""A run's record, made and written at its end, with its curves."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from typing import TYPE_CHECKING, Any

from labs.measure import throughput
from labs.results import curves
from labs.results import tables as texts
from labs.results.records import FORMAT, Record
from labs.run import atomic
from labs.run.paths import shown

if TYPE_CHECKING:
    from labs.training.workers import Job


def finish(job: Job, history: list[dict], *, tables: dict[str, list[dict]] | None = None, **metrics: float) -> Record:
    """Make the run's record, write it with its curves (rank 0), and return it on every worker.

    Args:
        job: The run.
        history: Rows of epochs, as `fit` returns them; none for a run that trains nothing.
        tables: Further rows by the name of their table, such as those of "collectives".
        metrics: Results of the whole run, such as test_accuracy.
    """
    from labs.training.layout import machine, versions

    if job.options.timeline:
        tables = (tables or {}) | {"timeline": _timeline(job)}
    batch_size = getattr(job.config, "batch_size", 0)
    seconds = time.monotonic() - job.started
    layout = {name: value for name, value in dataclasses.asdict(job.layout).items() if "rank" not in name}
    record = {
        "format": FORMAT,
        "lab": job.lab,
        "run": job.name,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(time.time() - seconds)),
        "config": _plain(dataclasses.asdict(job.config)),
        "layout": _plain(layout | {"global_batch_size": batch_size * job.size}),
        "data": _plain(job.data),
        "versions": versions(),
        "machine": machine(),
        "history": history,
        "timings": {
            "total_seconds": seconds,
            "first_epoch_seconds": history[0]["train_seconds"] if history else None,
            "seconds_per_epoch": throughput.seconds_per_epoch(history),
            "images_per_sec": throughput.images_per_sec(history),
        },
        "metrics": metrics,
        "tables": _plain(tables or {}),
    }
    if job.rank == 0:
        if history:
            curves.save(curves.curves([record]), job.folder / "curves.png")
        atomic.write_json(job.folder / "record.json", record)
        for folder in ("heartbeats", "places"):  # Older versions wrote `places`.
            shutil.rmtree(job.folder / folder, ignore_errors=True)
    job.print_once("\n" + texts.closing(record) + f"\n\n{'curves and ' if history else ''}record: {shown(job.folder)}")
    return record


def exchanged(job: Job) -> list[dict]:
    """End the run's timeline and return the exchanges so far, by kind; empty except on rank 0, which wrote it."""
    from labs.measure import timeline
    from labs.training import hvd_ops

    hvd_ops.stop_timeline()
    if job.rank:
        return []
    events = timeline.repair(job.folder / hvd_ops.TIMELINE)
    return timeline.summary(timeline.exchanges(events, hvd_ops.BROADCAST_BYTES))


def _timeline(job: Job) -> list[dict]:
    """End the run's timeline; print and return its exchanges (rank 0)."""
    from labs.training.hvd_ops import TIMELINE

    rows = exchanged(job)
    job.print_once(f"\n{texts.messages(rows)}\n(timeline for ui.perfetto.dev: {shown(job.folder / TIMELINE)})")
    return rows


def _plain(value: Any) -> Any:
    """Return a value as it reads after a round trip through JSON."""
    return json.loads(json.dumps(value, default=str))
