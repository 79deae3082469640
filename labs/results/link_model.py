"""Predicted time of a training step, from a link's constants and a computation that are measured separately."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from labs.results import cost_model
from labs.run.errors import LabError

SMALLEST = 64 * 2**10
"""Bytes of the smallest message that a fit uses: on fast links, smaller ones mostly take Horovod's cycle."""


class Link(NamedTuple):
    """A link's constants in the alpha-beta model: seconds of an empty message (alpha), bytes per second (1 / beta)."""

    latency: float
    bandwidth: float

    def allreduce_seconds(self, nbytes: float, n: int) -> float:
        """Return the seconds of a ring all-reduce of n workers."""
        return cost_model.ring_seconds(nbytes, n, self.latency, self.bandwidth)


def fit(rows: Sequence[Mapping[str, Any]], n: int) -> Link:
    """Return the constants of a link between n nodes that explain the `seconds` of all-reduces by their `bytes`."""
    nbytes, seconds = _used(rows, "bytes", "seconds")
    # A ring: seconds = 2 (n - 1) latency + 2 (n - 1) / n nbytes / bandwidth.
    latency, per_byte = _smallest_errors(n, [2 * (n - 1) / n * nbytes], seconds)
    return Link(latency, 1 / per_byte)


def between(rows: Sequence[Mapping[str, Any]], n: int, bits_per_second: float) -> Link:
    """Return the constants of a link of a bandwidth that was not measured, from the all-reduces over others.

    Fits seconds = 2 (n - 1) latency + 2 (n - 1) / n bytes (processor + factor / bandwidth) to all of them. `processor`
    is what a byte costs on any link. `factor` is 1 for a ring; an algorithm that sends more bytes over its busiest link
    has a larger one. An unlimited link has infinite `bits_per_second`.
    """
    nbytes, seconds, bits = _used(rows, "bytes", "seconds", "bits_per_second")
    sent = 2 * (n - 1) / n * nbytes
    latency, processor, factor = _smallest_errors(n, [sent, 8 * sent / bits], seconds)
    return Link(latency, 1 / (processor + 8 * factor / bits_per_second))


def _used(rows: Sequence[Mapping[str, Any]], *names: str) -> np.ndarray:
    """Return some columns of the rows with messages of at least SMALLEST bytes."""
    used = [[row[name] for name in names] for row in rows if row["bytes"] >= SMALLEST]
    return np.array(used, float).reshape(-1, len(names)).T


def _smallest_errors(n: int, per_byte: Sequence[np.ndarray], seconds: np.ndarray) -> list[float]:
    """Return the latency and the coefficients of some terms, none below 0, with the least squared relative errors."""
    from scipy import optimize

    columns = np.stack([np.full_like(seconds, 2 * (n - 1)), *per_byte], axis=1) / seconds[:, None]
    if np.linalg.matrix_rank(columns) < columns.shape[1]:
        raise LabError(f"a fit needs two workers, messages of two sizes from {SMALLEST // 2**10} KiB on, and two links "
                       "if it is for a third")
    scale = np.linalg.norm(columns, axis=0)  # Seconds and bytes differ by orders of magnitude.
    latency, *costs = (optimize.nnls(columns / scale, np.ones_like(seconds))[0] / scale).tolist()
    if sum(costs) <= 0:
        raise LabError("no bandwidth explains these times: they do not grow with the bytes")
    return [latency, *costs]


def parts(cell: Mapping[str, Any], n: int, link: Link, unlimited: Link, busy: Link,
          alone: float | None = None) -> dict[str, float]:
    """Return the seconds `alone`, `processor`, `wire` and `window` of a training step on n nodes of one worker each.

    An exchange needs the processor (copies, sums, the kernel's TCP), as over an unlimited link, and waits for the link.
    A node with one core computes nothing meanwhile, so only the wait for the link can hide, behind the part of the
    backward pass that follows the largest gradient. There the exchange first waits for the busy core.

    Args:
        cell: As from `measure.network.cells`.
        link, unlimited, busy: The constants of the link, of an unlimited one, and while a program keeps the cores busy.
        alone: Seconds of a step that exchanges nothing, if the machine may have changed its speed since.
    """
    speed = 1.0 if alone is None else alone / cell["alone_seconds"]
    exchange = link.allreduce_seconds(cell["gradient_bytes"], n)
    processor = min(unlimited.allreduce_seconds(cell["gradient_bytes"], n), exchange)
    for_core = max(0.0, busy.allreduce_seconds(cell["gradient_bytes"], n) - processor)
    window = max(0.0, speed * (cell["computed_seconds"] - cell["ready_seconds"]) - for_core)
    return {"alone": speed * cell["alone_seconds"], "processor": processor, "wire": exchange - processor,
            "window": window}


def step(cell: Mapping[str, Any], n: int, link: Link, unlimited: Link, busy: Link, alone: float | None = None) -> float:
    """Return the seconds of a training step from its `parts`, which have the same arguments."""
    of = parts(cell, n, link, unlimited, busy, alone)
    return of["alone"] + of["processor"] + max(0.0, of["wire"] - of["window"])
