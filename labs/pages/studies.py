"""Summaries of sweeps: a lab's own text and figures over all runs of its sweeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from labs.pages import layouts, memory_limits, over_links, transports

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Runs = Sequence[dict[str, Any]]

SUMMARIES: Mapping[str, Sequence[Callable[[Runs], str]]] = {
    "lab05_allreduce": (over_links.summary,),
    "lab06_memory": (memory_limits.summary,),
    "lab07_vit": (transports.summary,),
    "lab11_multinode": (layouts.summary,),
}
FIGURES: Mapping[str, Callable[[Runs], Iterable[tuple[str, Figure]]]] = {"lab06_memory": memory_limits.figures}


def summary(lab: str, runs: Runs) -> str:
    """Return the lab's own summary of some runs as text; an empty string if it has none, or none of these runs."""
    return "\n\n".join(filter(None, (summarize(runs) for summarize in SUMMARIES.get(lab, ()))))


def figures(lab: str, runs: Runs) -> Iterable[tuple[str, Figure]]:
    """Return the lab's own figures of some runs, each with its title."""
    return FIGURES[lab](runs) if lab in FIGURES else ()
