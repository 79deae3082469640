"""The curves of a run; colours for all figures that the colour-blind can tell apart (Okabe and Ito 2008)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from labs.run import atomic
from labs.run.errors import plural

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""The colours of all plots; everything else is grey."""
RANK_COLOURS = (*COLOURS, "#F0E442")
"""The colour of each rank, the same in every figure that shows ranks; from rank 8 on they repeat."""
BESIDE: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1, 1)}  # A legend next to the plot, not over it.


def curves(records: Sequence[dict[str, Any]]) -> Figure:
    """Draw loss and accuracy (or error) over the epochs, training dashed and validation solid, one colour per run."""
    figure = empty(11, 3.4)
    loss, accuracy = figure.subplots(1, 2)
    metric = "mae" if any("mae" in row for record in records for row in record["history"][:1]) else "accuracy"
    for record, colour in zip(records, COLOURS, strict=False):
        for axes, name in ((loss, "loss"), (accuracy, metric)):
            _draw(axes, record["history"], name, plural(record["layout"]["size"], "worker"), colour)
    loss.set(xlabel="epoch", ylabel="loss", title="Loss")
    title, unit, top = (("Accuracy", "accuracy (share of right answers)", 1) if metric == "accuracy" else
                        ("Mean absolute error", "mean absolute error (years)", None))
    accuracy.set(xlabel="epoch", ylabel=unit, ylim=(0, top), title=title)
    for axes in (loss, accuracy):
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
    if accuracy.get_legend_handles_labels()[0]:
        accuracy.legend(fontsize=8, **BESIDE)
    return figure


def _draw(axes, history: Sequence[dict[str, float]], name: str, label: str, colour: str) -> None:
    for column, style, subset in ((name, "--", "training"), (f"val_{name}", "-o", "validation")):
        if history and column in history[0]:
            axes.plot([row["epoch"] for row in history], [row.get(column, np.nan) for row in history], style,
                      markersize=3, color=colour, label=f"{label}, {subset}")


def save(figure: Figure, path: Path) -> None:
    """Write a figure as a PNG."""
    with atomic.writing(path) as file:
        figure.savefig(file, format="png", dpi=120)


def empty(width: float, height: float) -> Figure:
    """Return an empty figure; matplotlib is imported here, because workers import this module."""
    from matplotlib.figure import Figure

    # White whatever the style: labels are black, and a dark page would swallow them.
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")
