"""Plots: labelled, with units, in colours that a colour-blind reader can tell apart (Okabe and Ito 2008)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def curves(records: Sequence[dict[str, Any]], labels: Sequence[str] | None = None,
           reference: dict[str, float] | None = None) -> Figure:
    """Draw loss and accuracy over the epochs, training dashed and validation solid, one colour per run.

    Args:
        records: Records of runs.
        labels: What to call them; by default their number of workers.
        reference: Accuracies of a course report by their label, drawn as grey lines.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.4), layout="constrained")
    loss, accuracy = figure.subplots(1, 2)
    labels = labels or [_workers(record) for record in records]
    for record, label, colour in zip(records, labels, COLOURS, strict=False):
        for axes, name in ((loss, "loss"), (accuracy, "accuracy")):
            _draw(axes, record["history"], name, label, colour)
    for place, (label, value) in enumerate((reference or {}).items()):
        accuracy.axhline(value, color="0.6", linewidth=1, linestyle=(0, (1, 1 + place)), label=label)
    loss.set(xlabel="epoch", ylabel="loss", title="Loss")
    accuracy.set(xlabel="epoch", ylabel="accuracy (share right)", ylim=(0, 1), title="Accuracy")
    for axes in (loss, accuracy):
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
    accuracy.legend(fontsize=8)
    return figure


def _workers(record: dict[str, Any]) -> str:
    size = record["layout"]["size"]
    return f"{size} worker{'s' * (size > 1)}"


def _draw(axes, history: Sequence[dict[str, float]], name: str, label: str, colour: str) -> None:
    epochs = [row["epoch"] for row in history]
    if history and name in history[0]:
        axes.plot(epochs, [row[name] for row in history], "--", color=colour, label=f"{label}, training")
    if history and f"val_{name}" in history[0]:
        axes.plot(epochs, [row[f"val_{name}"] for row in history], "-o", markersize=3, color=colour,
                  label=f"{label}, validation")


def save_curves(record: dict[str, Any], path: Path) -> None:
    """Write the curves of one run as a PNG."""
    from labs import durable

    with durable.writing(path) as file:
        curves([record]).savefig(file, format="png", dpi=120)
