"""The record that a run writes at its end, `<results root>/<lab>/<run>/record.json`; `records` reads it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from labs.results import curves
from labs.run import atomic, environment, heartbeat, terminal
from labs.run.paths import format_path

if TYPE_CHECKING:
    from labs.training.workers import Job

Record = dict[str, Any]
"""A record that fits `records.Schema`, as JSON values; it may have more fields."""
FORMAT = 1
"""The format of the records that this kit writes and reads."""


def finish(job: Job, history: list[dict], *, tables: dict[str, list[dict]] | None = None, **metrics: float) -> Record:
    """Make the run's record, write it with its curves (rank 0), and return it on every worker.

    Args:
        history: Rows of epochs, as `fit` returns them; none for a run that trains nothing.
        tables: Further rows by the name of their table, such as those of "collectives".
        metrics: Results of the whole run, such as test_accuracy.
    """
    from labs.training.layout import machine, versions

    seconds = time.monotonic() - job.started
    layout = {name: value for name, value in dataclasses.asdict(job.layout).items() if "rank" not in name}
    record = {
        "format": FORMAT,
        "lab": job.lab,
        "run": job.name,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(time.time() - seconds)),
        "config": dataclasses.asdict(job.config),
        "layout": layout | {"global_batch_size": getattr(job.config, "batch_size", 0) * job.size},
        "data": job.data,
        "versions": versions() | {"commit": environment.commit()},
        "machine": machine(),
        "history": history,
        "timings": {"total_seconds": seconds} | epoch_timings(history),
        "metrics": metrics,
        "tables": tables or {},
    }
    record |= {"student": owner} if (owner := environment.student_id()) else {}
    record = json.loads(json.dumps(record, default=str))  # As it will be read.
    record["digest"] = digest(record)
    if job.rank == 0:
        if history:
            curves.save(curves.curves([record]), job.folder / "curves.png")
        atomic.write_json(job.folder / "record.json", record)
        shutil.rmtree(job.folder / heartbeat.FOLDER, ignore_errors=True)
    job.print_once(f"\n{closing(record)}\n\n{'curves and ' if history else ''}record: {format_path(job.folder)}")
    return record


def epoch_timings(history: Sequence[Mapping[str, float]]) -> dict[str, float | None]:
    """Return the seconds of the first epoch, which traces the model, and the timings of the others (None: it is alone).

    `seconds_per_epoch` includes validation; `images_per_sec` is that of all workers, in training alone.
    """
    later = history[1:]
    seconds = sum(row["train_seconds"] for row in later)
    whole = sum(row["train_seconds"] + row.get("val_seconds", 0.0) for row in later)
    return {
        "first_epoch_seconds": history[0]["train_seconds"] if history else None,
        "seconds_per_epoch": whole / len(later) if later else None,
        "images_per_sec": sum(row["images"] for row in later) / seconds if seconds else None,
    }


def closing(record: Record) -> str:
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
    ledger = ", ".join(f"{name.split('_')[1]} {value:.2f}" for name, value in metrics.items() if "ledger_" in name)
    return lines + f"\n\nseconds of an epoch: {ledger}" * bool(ledger)


def _number(value: Any) -> str:
    """Return a figure of the closing table; None: not measured, such as the throughput of one epoch."""
    if not isinstance(value, float):
        return "not measured" if value is None else str(value)
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.4f}"


def digest(record: Record) -> str:
    """Return the SHA-256 of a record's content, apart from its digest: anyone can compute it, so it proves nothing."""
    content = {name: value for name, value in record.items() if name != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
