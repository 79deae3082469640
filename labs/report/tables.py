"""Tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def closing(record: dict[str, Any]) -> str:
    """Return the table that ends a run: workers, rate, seconds per epoch, accuracies."""
    history = record["history"]
    last = history[-1] if history else {}
    row = {
        "workers": record["layout"]["size"],
        "global batch": record["layout"]["global_batch_size"],
        "images/s": record["timings"]["images_per_sec"],
        "s/epoch": record["timings"]["seconds_per_epoch"],
    } if history else {"workers": record["layout"]["size"], "seconds": record["timings"]["total_seconds"]}
    row |= {name.replace("val_", "validation "): last[name] for name in last if name in ("val_accuracy", "val_loss")}
    row |= {name.replace("_", " "): value for name, value in record["metrics"].items()
            if isinstance(value, float) and not name.startswith("ledger_")}
    lines = text([list(row), [_number(value) for value in row.values()]])
    return "\n".join(filter(None, [lines, _ledger(record["metrics"])]))


def _ledger(metrics: dict[str, float]) -> str:
    """Return where the time of an epoch went, in a line; nothing if it was not measured."""
    parts = {name.split("_")[1]: value for name, value in metrics.items() if name.startswith("ledger_")}
    if not parts:
        return ""
    wall = parts.pop("wall")
    return f"\nan epoch of {wall:.2f} s: " + ", ".join(f"{name} {value:.2f} s" for name, value in parts.items())


def messages(rows: Sequence[dict[str, Any]]) -> str:
    """Return what Horovod's timeline says of a run: exchanges, messages, bytes and seconds of each kind."""
    head = ["exchanged", "times", "messages", "bytes", "share", "negotiating ms", "waiting ms", "transfers s"]
    lines = [
        [row["kind"], str(row["exchanges"]), str(row["messages"]), "?" if row["bytes"] is None else f"{row['bytes']:,}",
         f"{row['share']:.2%}", f"{1e3 * row['negotiating_seconds']:.2f}", f"{1e3 * row['waiting_seconds']:.2f}",
         f"{row['transfer_seconds']:.3f}"] for row in rows
    ]
    return text([head, *lines])


def _number(value: Any) -> str:
    if value is None:
        return "one epoch only"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.4f}"


def text(rows: Sequence[Sequence[str]]) -> str:
    """Return rows, the first being the heading, as lines with columns set to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])
