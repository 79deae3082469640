"""A run's record, made and written at its end with its curves, and the tables that the run prints then."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from labs.measure import throughput, timeline
from labs.results import curves, records
from labs.run import atomic, environment, heartbeat, terminal
from labs.run.paths import format_path

if TYPE_CHECKING:
    from labs.training.workers import Job


def finish(job: Job, history: list[dict], *, tables: dict[str, list[dict]] | None = None,
           **metrics: float) -> records.Record:
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
    seconds = time.monotonic() - job.started
    layout = {name: value for name, value in dataclasses.asdict(job.layout).items() if "rank" not in name}
    record = {
        "format": records.FORMAT,
        "lab": job.lab,
        "run": job.name,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(time.time() - seconds)),
        "config": dataclasses.asdict(job.config),
        "layout": layout | {"global_batch_size": getattr(job.config, "batch_size", 0) * job.size},
        "data": job.data,
        "versions": versions() | {"commit": environment.commit()},
        "machine": machine(),
        "history": history,
        "timings": {
            "total_seconds": seconds,
            "first_epoch_seconds": history[0]["train_seconds"] if history else None,
            "seconds_per_epoch": throughput.seconds_per_epoch(history),
            "images_per_sec": throughput.images_per_sec(history),
        },
        "metrics": metrics,
        "tables": tables or {},
    }
    record |= {"student": owner} if (owner := environment.student_id()) else {}
    record = json.loads(json.dumps(record, default=str))  # As it will be read.
    record["digest"] = records.digest(record)
    if job.rank == 0:
        if history:
            curves.save(curves.curves([record]), job.folder / "curves.png")
        atomic.write_json(job.folder / "record.json", record)
        shutil.rmtree(job.folder / heartbeat.FOLDER, ignore_errors=True)
    job.print_once("\n" + closing(record) + f"\n\n{'curves and ' if history else ''}record: {format_path(job.folder)}")
    return record


def exchanged(job: Job) -> list[dict]:
    """End the run's timeline and return the exchanges so far, by kind; empty except on rank 0, which wrote it."""
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
    job.print_once(f"\n{_messages(rows)}\n(timeline for ui.perfetto.dev: {format_path(job.folder / TIMELINE)})")
    return rows


def closing(record: records.Record) -> str:
    """Return the table at the end of a run: workers, throughput, seconds per epoch, accuracies, and the ledger."""
    history, layout, timings, metrics = (record[name] for name in ("history", "layout", "timings", "metrics"))
    row = {"workers": layout["size"]} | ({
        "global batch": layout["global_batch_size"],
        "images/s": timings["images_per_sec"],
        "s/epoch": timings["seconds_per_epoch"],
    } if history else {"seconds": timings["total_seconds"]})
    row |= {name.replace("val_", "validation "): value for name, value in (history[-1] if history else {}).items()
            if name in ("val_accuracy", "val_mae", "val_loss")}
    row |= {name.replace("_", " "): value for name, value in metrics.items()
            if isinstance(value, float) and not name.startswith("ledger_")}
    lines = terminal.table([list(row), [_number(value) for value in row.values()]])
    if "ledger_wall_seconds" not in metrics:
        return lines
    amounts = ", ".join(f"{name.split('_')[1]} {value:.2f} s" for name, value in metrics.items()
                        if name.startswith("ledger_") and name != "ledger_wall_seconds")
    return f"{lines}\n\n" + f"an epoch of {metrics['ledger_wall_seconds']:.2f} s: {amounts}"


def _messages(rows: Sequence[dict[str, Any]]) -> str:
    """Return the exchanges in Horovod's timeline as a table: messages, bytes and seconds of each kind."""
    head = ["exchanged", "times", "messages", "bytes", "share", "negotiating ms", "waiting ms", "transfers s"]
    lines = [
        [row["kind"], str(row["exchanges"]), str(row["messages"]), "?" if row["bytes"] is None else f"{row['bytes']:,}",
         f"{row['share']:.2%}", f"{1e3 * row['negotiating_seconds']:.2f}", f"{1e3 * row['waiting_seconds']:.2f}",
         f"{row['transfer_seconds']:.3f}"] for row in rows
    ]
    return terminal.table([head, *lines])


def _number(value: Any) -> str:
    """Return a figure of the closing table; None: not measured, such as the throughput of one epoch."""
    if value is None:
        return "not measured"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.4f}"
