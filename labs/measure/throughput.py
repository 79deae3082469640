"""How fast a run was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def images_per_sec(history: Sequence[Mapping[str, float]]) -> float | None:
    """Return the training images per second of all workers together, without the first epoch.

    The first epoch also traces the model and decodes every picture; None when there is no other.
    """
    later = history[1:]
    seconds = sum(row["train_seconds"] for row in later)
    return sum(row["images"] for row in later) / seconds if seconds else None


def seconds_per_epoch(history: Sequence[Mapping[str, float]]) -> float | None:
    """Return the mean seconds of an epoch, validation included, without the first one; None when there is no other."""
    later = history[1:]
    return sum(row["train_seconds"] + row.get("val_seconds", 0.0) for row in later) / len(later) if later else None
