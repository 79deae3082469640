"""Drawings of training: a step, an epoch, a node, scaling, all-reduces, SGD's paths, subsets, running means.

Each function returns a Figure that is 900 pixels wide at 100 dpi and has a white background. Rank r has the colour
`plots.RANK_COLOURS[r]` in all of them. Nothing here imports TensorFlow, so a notebook shows them at once.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from labs.pages import plots
from labs.results import cost_model
from labs.run.errors import LabError
from labs.run.text import plural

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

Bar = tuple[str, float, float]
WIDTH = 9.0
"""Width of every figure, in inches."""
MOST_RANKS = 8
"""The most ranks that are legible at this width."""


def step_cost(fixed: float, per_image: float, batch_sizes: Sequence[int]) -> Figure:
    """Draw the time of one worker's step, a + c b, as a bar per batch size, with its throughput.

    Args:
        fixed: a, the seconds of a step that do not depend on its batch.
        per_image: c, the seconds per image.
        batch_sizes: b, images per step.
    """
    figure = plots.empty(WIDTH, 1.5 + 0.45 * len(batch_sizes))
    axes = figure.subplots()
    rows = range(len(batch_sizes))
    varying = [1e3 * per_image * size for size in batch_sizes]
    axes.barh(rows, 1e3 * fixed, 0.62, color="0.75", edgecolor="black", linewidth=0.8, label="fixed cost: $a$")
    axes.barh(rows, varying, 0.62, 1e3 * fixed, color=_colour(0), edgecolor="black", linewidth=0.8,
              label=r"images: $c\,b$")
    longest = 1e3 * fixed + max(varying)
    for row, size in zip(rows, batch_sizes, strict=True):
        seconds = fixed + per_image * size
        axes.text(1e3 * seconds + 0.012 * longest, row, f"{size / seconds:,.0f} images/s; {fixed / seconds:.0%} fixed",
                  va="center", fontsize=9)
    axes.set(xlim=(0, 1.45 * longest), xlabel="time of one step (milliseconds)", ylabel="batch size $b$ (images)")
    axes.set_yticks(rows, [f"{size:,}" for size in batch_sizes])
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(f"One step: $a$ = {_si(fixed, 's')}, $c$ = {_si(per_image, 's')} per image, "
                   f"so at most 1 / $c$ = {1 / per_image:,.0f} images/s", fontsize=11)
    axes.legend(fontsize=9, **plots.BESIDE)
    return _padded(figure)


def data_parallel(n: int = 4) -> Figure:
    """Draw one step of data-parallel training: equal weights, n shards, n gradients, their mean, equal updates.

    Args:
        n: Number of workers, from 1 to 8.

    Raises:
        LabError: More workers than the figure can show.
    """
    _check_ranks(n, 1)
    figure = plots.empty(WIDTH, 5.3)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))  # One unit of the axes is one inch.
    axes.set(xlim=(0, WIDTH), ylim=(0, 5.3))
    axes.axis("off")
    axes.text(WIDTH / 2, 5.05, f"One training step on {plural(n, 'worker')}", ha="center", va="center",
              fontsize=12)
    heights = {"weights": 4.3, "shard": 3.5, "gradient": 2.65, "mean": 1.75, "update": 0.9, "again": 0.25}
    _explain(axes, heights, n)
    left, column = 2.75, 6.0 / n
    wide = min(1.25, 0.86 * column)
    few = n <= 5
    size = 9 if few else 7.5
    for rank in range(n):
        x, colour = left + (rank + 0.5) * column, _colour(rank)
        axes.text(x, 4.72, f"rank {rank}", ha="center", va="center", fontsize=size, weight="bold")
        _box(axes, x, heights["weights"], wide, 0.34, "weights $w$", size)
        _images(axes, x, heights["shard"], wide, colour)
        axes.text(x, heights["shard"] - 0.24, "$b$ images", ha="center", va="center", fontsize=size)
        _box(axes, x, heights["gradient"], wide, 0.34, f"gradient $g_{rank}$" if few else f"$g_{rank}$", size, colour)
        _box(axes, x, heights["update"], wide, 0.34, r"$w \leftarrow w - \eta\,g$" if n <= 4 else r"$w - \eta\,g$",
             size)
        _box(axes, x, heights["again"], wide, 0.3, "weights $w$", size)
        for above, below, ink in ((4.11, 3.68, "0.4"), (3.17, 2.84, colour), (2.46, 1.98, colour), (1.52, 1.09, "0.4"),
                                  (0.71, 0.42, "0.4")):
            _arrow(axes, (x, above), (x, below), ink)
        if rank and few:
            between = x - column / 2
            for row, sign in (("weights", "="), ("gradient", r"$\neq$"), ("update", "="), ("again", "=")):
                axes.text(between, heights[row], sign, ha="center", va="center", fontsize=size + 1)
    _box(axes, left + 3, heights["mean"], 5.9, 0.4, f"all-reduce: $g =$ {_mean(n)}", 10)
    return figure


def _explain(axes: Axes, heights: dict[str, float], n: int) -> None:
    """Write the numbered text at the left of `data_parallel`."""
    texts = {"weights": ("1  Equal weights", "broadcast once, at the start"),
             "shard": ("2  A batch for each", "of its shard; in all $B = N\\,b$"),
             "gradient": ("3  Forward, backward", "each on its own images"),
             "mean": ("4  All-reduce", "only gradients are sent" if n > 1 else "one worker: none sent"),
             "update": ("5  Equal updates", r"learning rate $\eta$"),
             "again": ("", "ready for the next step")}
    for row, (heading, text) in texts.items():
        y = heights[row]
        axes.text(0.15, y + 0.1, heading, va="center", fontsize=10.5, weight="bold")
        axes.text(0.36, y - 0.1 if heading else y, text, va="center", fontsize=9, color="0.25")


def _mean(n: int) -> str:
    """Return the formula of the gradients' mean."""
    if n == 1:
        return "$g_0$"
    terms = [f"g_{rank}" for rank in range(n)] if n <= 4 else ["g_0", "g_1", r"\ldots", f"g_{n - 1}"]
    return f"$({' + '.join(terms)})\\,/\\,{n}$"


def _images(axes: Axes, x: float, y: float, wide: float, colour: str) -> None:
    """Draw a shard's images: four squares around (x, y)."""
    from matplotlib.patches import Rectangle

    pitch = min(0.24, wide / 4)
    for image in range(4):
        axes.add_patch(Rectangle((x + (image - 2) * pitch + 0.03, y - 0.09), pitch - 0.06, pitch - 0.06,
                                 facecolor=colour, edgecolor="black", linewidth=0.6))


def epoch_over_time(compute: float, communication: float, start: float, n: int = 2, steps: int = 4) -> Figure:
    """Draw an epoch of one worker above an epoch of n workers: its start, then compute and communication of each step.

    Args:
        compute: Seconds of a step of one worker.
        communication: Seconds by which the exchange of the gradients lengthens a step of n workers.
        start: Seconds of an epoch before its first step.
        n: Number of workers, from 2 to 4.
        steps: Steps of one worker's epoch; n workers take one n-th of them, rounded up.

    Raises:
        LabError: More workers or steps than the figure can show.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    _check_ranks(n, 2, 4)
    if not n <= steps <= 12:
        raise LabError(f"this figure shows {n} to 12 steps, not {steps}")
    figure = plots.empty(WIDTH, 1.5 + 0.45 * (n + 1))
    axes = figure.subplots()
    grey, dark = "0.88", "0.35"
    lanes = [(0, steps, compute, "1 worker, rank 0"),
             *((rank, -(-steps // n), compute + communication, f"{n} workers, rank {rank}") for rank in range(n))]
    rows = [lane + 0.35 * (lane > 0) for lane in range(n + 1)]
    for y, (rank, own, step, _) in zip(rows, lanes, strict=True):
        axes.barh(y, start, 0.7, 0, color=grey, edgecolor="black", linewidth=0.8)
        for number in range(own):
            began = start + number * step
            axes.barh(y, compute, 0.7, began, color=_colour(rank), edgecolor="black", linewidth=0.8)
            axes.barh(y, step - compute, 0.7, began + compute, color=dark, edgecolor="black", linewidth=0.8)
            axes.text(began + compute / 2, y, "b images", ha="center", va="center", fontsize=8,
                      color=_ink_on(_colour(rank)))
    alone, together = start + steps * compute, start + lanes[1][1] * lanes[1][2]
    axes.axvline(alone / n, color="0.3", linestyle=":", zorder=0)
    axes.set_yticks(rows, [lane[3] for lane in lanes])
    axes.invert_yaxis()
    axes.set(xlim=(0, 1.02 * alone), xlabel="seconds since the epoch began")
    axes.set_title(f"T(1) = {alone:.3g} s, T({n}) = {together:.3g} s: S({n}) = {alone / together:.2f}, not {n}",
                   fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(handles=[
        Patch(facecolor=_colour(0), edgecolor="black", label="compute (a rank's colour): divided among the workers"),
        Patch(facecolor=dark, edgecolor="black", label="communication: added in every step"),
        Patch(facecolor=grey, edgecolor="black", label="start of the epoch: not divided"),
        Line2D([], [], color="0.3", linestyle=":", label=f"ideal: T(1) / {n}")],
        loc="outside lower center", ncols=2, fontsize=8)
    return _padded(figure)


def one_or_two(fixed: float, compute: float, exchanges: Mapping[str, float]) -> Figure:
    """Draw a step of one worker above steps of two workers that halve its images, one per link.

    Args:
        fixed: a, the seconds of a step that do not depend on its batch.
        compute: c B, the seconds of the images of one worker's step.
        exchanges: Seconds that the exchange adds to a step of two workers, by the name of the link.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    grey, dark, alone = "0.88", "0.35", fixed + compute
    bars = {"1 worker": (compute, 0.0), **{f"2 workers, {name}": (compute / 2, seconds)
                                           for name, seconds in exchanges.items()}}
    figure = plots.empty(WIDTH, 1.7 + 0.45 * len(bars))
    axes = figure.subplots()
    longest = max(fixed + sum(bar) for bar in bars.values())
    for y, (images, exchange) in enumerate(bars.values()):
        left = 0.0
        for seconds, colour in ((fixed, grey), (images, _colour(0)), (exchange, dark)):
            axes.barh(y, 1e3 * seconds, 0.62, 1e3 * left, color=colour, edgecolor="black", linewidth=0.8)
            left += seconds
        axes.text(1e3 * (left + 0.012 * longest), y, f"S = {alone / left:.2f}" if y else "", va="center", fontsize=10)
    axes.axvline(1e3 * alone, color="0.3", linestyle=":", zorder=0)
    axes.set_yticks(range(len(bars)), list(bars))
    axes.invert_yaxis()
    axes.set(xlim=(0, 1.15e3 * longest), xlabel="time of one step (milliseconds)")
    axes.set_title("The same global batch: half of the images each, and an exchange", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(handles=[
        Patch(facecolor=grey, edgecolor="black", label="$a$: fixed, not divided"),
        Patch(facecolor=_colour(0), edgecolor="black", label=r"images: $c\,B$, then $c\,B/2$"),
        Patch(facecolor=dark, edgecolor="black", label="$x$: the exchange"),
        Line2D([], [], color="0.3", linestyle=":", label="$T_1$")], loc="outside lower center", ncols=4, fontsize=9)
    return _padded(figure)


def weak_and_strong(batch: int = 128, sizes: Sequence[int] = (1, 2, 4)) -> Figure:
    """Draw the images of one step by rank: weak scaling keeps the batch of each, strong scaling that of all together.

    Args:
        batch: Images of one worker's step, and global batch of the strong scaling.
        sizes: Numbers of workers, up to 8; each divides the batch.

    Raises:
        LabError: More workers than the figure can show, or a batch that they cannot divide.
    """
    for n in sizes:
        _check_ranks(n, 1)
        if batch % n:
            raise LabError(f"a global batch of {batch} cannot be divided among {n} workers")
    figure = plots.empty(WIDTH, 1.6 + 0.5 * len(sizes))
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for axes, kind, share in zip(panels, ("weak", "strong"), (lambda n: batch, lambda n: batch // n), strict=True):
        for y, n in enumerate(sizes):
            for rank in range(n):
                axes.barh(y, share(n), 0.62, rank * share(n), color=_colour(rank), edgecolor="black", linewidth=0.8)
                if share(n) * 16 >= batch * max(sizes):
                    axes.text((rank + 0.5) * share(n), y, f"{share(n)}", ha="center", va="center", fontsize=8,
                              color=_ink_on(_colour(rank)))
        axes.set_title(f"{kind} scaling: {'b' if kind == 'weak' else 'B = N b'} is fixed", fontsize=11)
        axes.set_xlabel("images of one step, by rank")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_yticks(range(len(sizes)), [str(n) for n in sizes])
    panels[0].set_ylabel("workers N (ranks)")
    panels[0].invert_yaxis()
    return _padded(figure)


def node_cuts(cores: int = 28, processes: Sequence[int] = (1, 2, 4)) -> Figure:
    """Draw one node's cores cut into processes x threads, above the three stages that a step's images pass through.

    Args:
        cores: Cores of the node.
        processes: Numbers of processes, each of which divides the cores.

    Raises:
        LabError: The processes cannot share the cores evenly, or are more than the figure can show.
    """
    for count in processes:
        _check_ranks(count, 1)
        if cores % count:
            raise LabError(f"{count} processes cannot share {cores} cores evenly")
    figure = plots.empty(WIDTH, 3.6)
    figure.suptitle(f"A node of {cores} cores as processes x threads, and the three stages of a step", fontsize=11)
    grid, columns = figure.add_gridspec(2, len(processes), height_ratios=(1.15, 1)), -(-cores // 4)
    for column, count in enumerate(processes):
        axes = figure.add_subplot(grid[0, column])
        threads = cores // count
        for core in range(cores):
            axes.plot(core % columns, -(core // columns), "s", markersize=11, color=_colour(core // threads),
                      markeredgecolor="black", markeredgewidth=0.6)
        axes.set_title(f"{count} x {threads}", fontsize=11)
        axes.set(xlim=(-0.8, columns - 0.2), ylim=(-3.8, 0.8))
        axes.axis("off")
    axes = figure.add_subplot(grid[1, :])
    stages = (("input", "read, decode, resize"), ("compute", "forward, backward"), ("exchange", "gradients, by ring"))
    for number, (name, what) in enumerate(stages):
        _box(axes, 1.7 * number, 0, 1.5, 1.0, f"{name}\n{what}", 9)
        if number:
            _arrow(axes, (1.7 * number - 0.95, 0), (1.7 * number - 0.75, 0), "0.3")
    axes.text(4.35, 0, "images per second:\nthe slowest stage decides,\nif all work at once", va="center", fontsize=9)
    axes.set(xlim=(-0.9, 6.2), ylim=(-0.85, 0.85))
    axes.axis("off")
    return _padded(figure)


class Send(NamedTuple):
    """A chunk that one rank sends to another."""

    source: int
    target: int
    chunk: int


@dataclasses.dataclass(frozen=True)
class RingState:
    """What all ranks hold after a step of a ring all-reduce."""

    phase: str
    """"start", "reduce-scatter" or "all-gather"."""
    values: np.ndarray
    """Each rank's values, [ranks, elements, ...]."""
    sends: tuple[Send, ...]
    """What was sent in this step, all of it at the same time."""
    sent_bytes: np.ndarray
    """Bytes that each rank has sent until now, [ranks]."""


def ring_steps(values: Sequence[ArrayLike]) -> list[RingState]:
    """Return the states of a ring all-reduce that sums one array per rank: the start, then one per step.

    Each rank cuts its array into N chunks. Reduce-scatter: in each of N - 1 steps every rank sends a chunk to the next
    rank, which adds it to its own. Then rank r holds the sum of chunk r + 1 over all ranks. All-gather: in N - 1 more
    steps the complete chunks go round, and replace what the receiver held. Source: Patarasuk and Yuan, "Bandwidth
    optimal all-reduce algorithms for clusters of workstations", JPDC 69(2), 2009.

    Args:
        values: An array of numbers per rank, all of the same shape; they are cut along their first axis.

    Raises:
        LabError: The arrays have different shapes, or are single numbers.
    """
    if len({np.shape(each) for each in values}) != 1 or not np.shape(values[0]):
        raise LabError("a ring needs one array per rank, all of the same shape")
    held = np.array(values)
    n = len(held)
    chunks = np.array_split(np.arange(held.shape[1]), n)
    sent = np.zeros(n, int)
    states = [RingState("start", held.copy(), (), sent.copy())]
    for step in range(2 * (n - 1)):
        sends = tuple(Send(rank, (rank + 1) % n, (rank - step) % n) for rank in range(n))
        messages = [held[send.source, chunks[send.chunk]] for send in sends]  # Copies: all are sent at the same time.
        for send, message in zip(sends, messages, strict=True):
            where = send.target, chunks[send.chunk]
            held[where] = message if step >= n - 1 else held[where] + message
            sent[send.source] += message.nbytes
        phase = "all-gather" if step >= n - 1 else "reduce-scatter"
        states.append(RingState(phase, held.copy(), sends, sent.copy()))
    return states


def ring(n: int = 4) -> Figure:
    """Draw a ring all-reduce as grids of ranks x chunks, a panel per step, simulated by `ring_steps`.

    A cell has a stripe for each rank whose values its sum contains, in that rank's colour; a complete sum has a bold
    frame. An arrow is a chunk that was sent in this step.

    Args:
        n: Number of ranks, from 2 to 5.

    Raises:
        LabError: The figure cannot show this number of ranks.
    """
    _check_ranks(n, 2, 5)
    last = 2 * (n - 1)
    # Rank r starts with the unit vector r in every chunk, so that each sum counts how often it contains each rank.
    states = ring_steps([np.tile(np.eye(n, dtype=int)[rank], (n, 1)) for rank in range(n)])
    message = states[0].values[0].nbytes
    rows, columns = (1, 2) if n == 2 else (2, n - 1)
    figure = plots.empty(WIDTH, rows * (0.6 * n + 0.7) + 1)
    panels = figure.subplots(rows, columns, squeeze=False)
    for number, (axes, state) in enumerate(zip(panels.flat, states[1:], strict=True), 1):
        _panel(axes, state, number, message)
    sent = states[-1].sent_bytes.max() / message
    figure.suptitle(f"Ring all-reduce of M bytes on N = {n} ranks: {last} steps,\n"
                    f"each rank sends 2 (N - 1) / N M = {round(n * sent)}/{n} M = {sent:.3g} M", fontsize=11)
    _ring_legend(figure, n)
    return _padded(figure)


def _panel(axes: Axes, state: RingState, number: int, message: int) -> None:
    """Draw one state of the ring: its cells and what was sent."""
    from matplotlib.patches import Rectangle

    n, high = len(state.values), 0.56
    for rank in range(n):
        for chunk in range(n):
            holds = state.values[rank, chunk]
            for other in np.flatnonzero(holds):
                axes.add_patch(Rectangle((chunk - 0.4 + 0.8 * other / n, rank - high / 2), 0.8 / n, high, linewidth=0,
                                         facecolor=_colour(int(other)), label=f"rank {other}"))
            complete = bool((holds == 1).all())
            axes.add_patch(Rectangle((chunk - 0.4, rank - high / 2), 0.8, high, facecolor="none", zorder=3,
                                     edgecolor="black" if complete else "0.6", linewidth=2 if complete else 0.8))
    for source, target, chunk in state.sends:
        ink = _colour(source)
        if target > source:
            _arrow(axes, (chunk, source + high / 2), (chunk, target - high / 2), ink, 2)
        else:  # From the last rank to the first: out at the bottom, in at the top.
            _arrow(axes, (chunk, source + high / 2), (chunk, source + 0.8), ink, 2)
            _arrow(axes, (chunk, target - 0.8), (chunk, target - high / 2), ink, 2)
    sent = round(n * state.sent_bytes.max() / message)
    axes.set_title(f"step {number}, {state.phase}\nsent so far: {sent}/{n} M", fontsize=9)
    axes.set(xlim=(-0.6, n - 0.4), ylim=(n - 0.15, -0.85))
    axes.set_xticks(range(n), list(map(str, range(n))), fontsize=8)
    axes.set_yticks(range(n), [f"rank {rank}" for rank in range(n)], fontsize=8)
    axes.set_xlabel("chunk of M / N bytes", fontsize=8)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _ring_legend(figure: Figure, n: int) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    entries: list[Any] = [Patch(color=_colour(rank), label=f"values of rank {rank}") for rank in range(n)]
    entries.append(Patch(facecolor="none", edgecolor="black", linewidth=2, label="sum over all ranks"))
    entries.append(Line2D([], [], color="0.3", marker="v", linewidth=2,
                          label="sent to the next rank (last: to rank 0)"))
    figure.legend(handles=entries, loc="outside lower center", ncols=3, fontsize=8)


def topologies(nbytes: Sequence[float] | None = None, n: int = 8, alpha: float = 50e-6, beta: float = 8e-10) -> Figure:
    """Draw the seconds of four all-reduces over the message size on logarithmic axes, from their formulas.

    - naive: all ranks send to rank 0, which adds and sends back: 2 (N - 1) (alpha + beta M)
    - tree: reduce and broadcast along a binomial tree: 2 ceil(log2 N) (alpha + beta M)
    - halving-doubling: reduce-scatter and all-gather with partners 1, 2, 4 ... ranks away: a tree's messages, a ring's
      bytes: 2 log2 N alpha + 2 (N - 1) / N beta M
    - ring: reduce-scatter and all-gather: 2 (N - 1) (alpha + beta M / N)

    Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 19(1),
    2005; the functions are in `labs/results/cost_model.py`. The time of the additions is left out.

    Args:
        nbytes: Sizes of the message (all gradients of a worker), in bytes; by default 8 B to 1 GB.
        n: Number of ranks.
        alpha: Latency: seconds of an empty message.
        beta: Seconds per byte, 1 / bandwidth; the default is 10 Gbit/s.
    """
    sizes = np.geomspace(8, 1e9, 200) if nbytes is None else np.sort(np.asarray(nbytes, float))
    figure = plots.empty(WIDTH, 4.4)
    axes = figure.subplots()
    styles = {"naive": (":", "0.45"), "tree": ("--", "0.25"), "ring": ("-", "black"),
              "halving-doubling": ("-.", plots.COLOURS[1])}
    for name, (style, colour) in styles.items():
        seconds = [COSTS[name](size, n, alpha, 1 / beta) for size in sizes]
        axes.plot(sizes, seconds, style, color=colour, linewidth=2.2, label=name)
    axes.plot(sizes, 2 * (n - 1) / n * beta * sizes, color="0.7", linewidth=1, zorder=1,
              label=r"no latency: $2\,(N-1)/N \cdot \beta M$")
    title = f"All-reduce on {plural(n, 'rank')}: latency {_si(alpha, 's')}, {_si(1 / beta, 'B/s')} per link"
    even = _break_even(n, alpha, beta)
    if even and sizes[0] < even < sizes[-1]:
        axes.axvline(even, color="0.7", linewidth=1, linestyle="-.", zorder=1)
        title += f"\nup to {_si(even, 'B')} the tree is faster, above it the ring"
    fastest = min(cost(sizes[0], n, alpha, 1 / beta) for cost in COSTS.values())
    axes.set(xscale="log", yscale="log", ylim=(fastest / 3, None), xlabel="array M (bytes)",
             ylabel="time of one all-reduce (seconds)")
    axes.set_title(title, fontsize=11)
    axes.xaxis.set_major_formatter(lambda value, _: _si(value, "B"))
    axes.yaxis.set_major_formatter(lambda value, _: _si(value, "s"))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=9, **plots.BESIDE)
    return _padded(figure)


COSTS: dict[str, Callable[[float, int, float, float], float]] = {
    "naive": cost_model.naive_seconds, "tree": cost_model.tree_seconds, "ring": cost_model.ring_seconds,
    "halving-doubling": cost_model.halving_seconds}
"""The formula of each topology; arguments: bytes, ranks, latency, bandwidth."""


def _break_even(n: int, alpha: float, beta: float) -> float | None:
    """Return the bytes at which tree and ring take the same time; None if one of them is faster at every size."""
    levels = math.ceil(math.log2(n)) if n > 1 else 0
    slower = levels - (n - 1) / n  # Of the tree, per byte.
    return (n - 1 - levels) * alpha / (slower * beta) if slower > 0 and n - 1 > levels else None


def topology_table(nbytes: float, n: int = 8, alpha: float = 50e-6, beta: float = 8e-10) -> pd.DataFrame:
    """Return steps, bytes and seconds of the all-reduces of `topologies`, counted from their messages.

    Columns: `steps` one after the other; `most_bytes_sent` by one rank; `bytes_sent` by all ranks together; `seconds`.

    Args:
        nbytes: Size of the message, in bytes.
        n: Number of ranks.
        alpha: Seconds of an empty message.
        beta: Seconds per byte.
    """
    import pandas as pd

    rows = {}
    for name in COSTS:
        if name == "halving-doubling" and n & (n - 1):
            continue
        steps = messages(name, n)
        sent = np.zeros(n)
        for source, _, share in (each for step in steps for each in step):
            sent[source] += share * nbytes
        seconds = sum(alpha + beta * nbytes * max(share for *_, share in step) for step in steps)
        rows[name] = {"steps": len(steps), "most_bytes_sent": sent.max(), "bytes_sent": sent.sum(), "seconds": seconds}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(index="topology").astype({"steps": int})


def messages(topology: str, n: int) -> list[list[tuple[int, int, float]]]:
    """Return the messages of an all-reduce, by step: source, target, and share of the message's bytes.

    Args:
        topology: "naive", "tree" (binomial), "ring" or "halving-doubling".
        n: Number of ranks.

    Raises:
        LabError: Halving-doubling on a number of ranks that is no power of two.
    """
    if topology == "ring":
        return [[(rank, (rank + 1) % n, 1 / n) for rank in range(n)] for _ in range(2 * (n - 1))]
    if topology == "halving-doubling":
        if n & (n - 1):
            raise LabError(f"halving-doubling pairs 2, 4, 8 ... ranks, not {n}")
        distances = [n >> level for level in range(1, n.bit_length())]  # n / 2, n / 4 ... 1
        halve = [[(rank, rank ^ far, far / n) for rank in range(n)] for far in distances]
        return halve + halve[::-1]
    if topology == "naive":
        reduce = [[(rank, 0, 1.0)] for rank in range(1, n)]
    else:
        distances = [2**level for level in range(math.ceil(math.log2(n)))]
        reduce = [[(rank, rank - far, 1.0) for rank in range(far, n, 2 * far)] for far in distances]
    return reduce + [[(target, source, share) for source, target, share in step] for step in reversed(reduce)]


def timed(text: str, call: Callable[..., Any], *values: Any) -> Bar:
    """Call a function with some values, and return its bar (text, began, ended), in seconds of this machine's clock."""
    began = time.perf_counter()
    call(*values)
    return text, began, time.perf_counter()


def typical(steps: Sequence[Sequence[Sequence[Bar]]]) -> list[list[Bar]]:
    """Return each rank's bars of the step of median length, in milliseconds since its first bar began.

    Args:
        steps: By rank, by step: the bars (text, began, ended) of `step_bars`, in seconds of one clock.
    """
    together = list(zip(*steps, strict=True))
    edges = [(min(bar[1] for rank in step for bar in rank), max(bar[2] for rank in step for bar in rank))
             for step in together]
    middle = sorted(range(len(edges)), key=lambda number: edges[number][1] - edges[number][0])[len(edges) // 2]
    began = edges[middle][0]
    return [[(text, 1e3 * (start - began), 1e3 * (end - began)) for text, start, end in rank]
            for rank in together[middle]]


def step_bars(steps: Mapping[str, Sequence[Sequence[Bar]]]) -> Figure:
    """Draw steps of all ranks over time: computations in the rank's colour, below them its all-reduces.

    Args:
        steps: By title: each rank's bars (text, began, ended) in milliseconds, from `typical`. An all-reduce's text
            begins with "all-reduce".
    """
    lanes = sum(len(ranks) for ranks in steps.values())
    figure = plots.empty(WIDTH, 0.7 + 0.6 * len(steps) + 0.55 * lanes)
    panels = figure.subplots(len(steps), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (title, ranks) in zip(panels, steps.items(), strict=True):
        for rank, bars in enumerate(ranks):
            exchanges = [bar for bar in bars if bar[0].startswith("all-reduce")]
            for bar in bars:
                line = exchanges.index(bar) if bar in exchanges else None
                high = 0.4 if line is None else 0.4 / len(exchanges)
                y = rank - 0.2 if line is None else rank + 0.02 + (line + 0.5) * high
                colour = _colour(rank) if line is None else "0.35"
                axes.barh(y, bar[2] - bar[1], high, bar[1], color=colour, edgecolor="black", linewidth=0.5)
                if line is None:
                    axes.text((bar[1] + bar[2]) / 2, y, bar[0], ha="center", va="center", fontsize=8,
                              color=_ink_on(colour))
        length = max(bar[2] for bars in ranks for bar in bars)
        axes.set_title(f"{title}: {length:.0f} ms", fontsize=10, loc="left")
        axes.set_yticks(range(len(ranks)), [f"rank {rank}" for rank in range(len(ranks))])
        axes.set(ylim=(len(ranks) - 0.45, -0.55))
        axes.grid(axis="x", alpha=0.3)
        axes.set_axisbelow(True)
    panels[-1].set_xlabel("milliseconds since the step began (dark: all-reduces, one line per layer)")
    return _padded(figure)


def loss_paths(paths: Sequence[ArrayLike] | Mapping[str, Sequence[ArrayLike]],
               loss: Callable[[np.ndarray, np.ndarray], np.ndarray],
               names: tuple[str, str] = ("weight $w_0$", "weight $w_1$"), labels: Sequence[str] | None = None,
               contours: int = 10) -> Figure:
    """Draw the contours of a loss with two weights, and on them the path of each rank's SGD steps.

    Ranks that exchange gradients and began with equal weights have one path. Later ranks have thinner lines, so that
    all colours can be seen on a shared path.

    Args:
        paths: Weights of each rank, by rank: [steps + 1, 2], the first row before step 1. Several of these by their
            title get a panel each.
        loss: Returns the losses of arrays of both weights.
        names: Labels of the axes; weights have no unit.
        labels: Labels of the paths; by default "rank 0", "rank 1" ...
        contours: Number of contour lines, about.

    Raises:
        LabError: A path does not have two columns.
    """
    titled = paths if isinstance(paths, Mapping) else {"": paths}
    panels = {title: [np.asarray(path, float) for path in ranks] for title, ranks in titled.items()}
    tracks = [track for ranks in panels.values() for track in ranks]
    if not tracks or any(track.ndim != 2 or track.shape[1] != 2 for track in tracks):
        raise LabError("a path has one row per step and two columns, one per weight")
    points = np.concatenate(tracks)
    low, high = points.min(axis=0), points.max(axis=0)
    margin = 0.2 * np.maximum(high - low, 1e-6 + 0.3 * (high - low).max())
    grid = np.meshgrid(*(np.linspace(low[axis] - margin[axis], high[axis] + margin[axis], 160) for axis in (0, 1)))
    heights = loss(*grid)
    figure = plots.empty(WIDTH, 5 if len(panels) == 1 else 3.7)
    row = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    for axes, (title, ranks) in zip(row, panels.items(), strict=True):
        lines = axes.contour(*grid, heights, levels=contours, colors="0.72", linewidths=0.9)
        _ranks_paths(axes, ranks, labels or [f"rank {rank}" for rank in range(len(ranks))])
        if len(panels) == 1:
            axes.clabel(lines, fontsize=7, colors="0.4")
        apart = max(float(np.linalg.norm(one[-1] - other[-1])) for one in ranks for other in ranks)
        steps = plural(max(len(track) for track in ranks) - 1, "step")
        axes.set_title(f"{title}\nafter {steps} {apart:.2g} apart" if title else
                       f"Weights after {steps} (squares): ranks at most {apart:.2g} apart\n"
                       "grey: contours of the loss", fontsize=11)
        axes.set_xlabel(names[0])
    row[0].set_ylabel(names[1])
    row[-1].legend(fontsize=9, **plots.BESIDE)
    return _padded(figure)


def least_squares_paths(paths: Mapping[str, Sequence[ArrayLike]], x: np.ndarray, y: np.ndarray) -> Figure:
    """Draw each rank's path over the mean of (x w - y)^2, with the minimum of each rank's examples and that of all.

    Args:
        paths: As in `loss_paths`, by the title of their panel.
        x: The examples [n, 2]; of N ranks, rank r has those from r on, every N-th.
        y: Their targets [n, 1].
    """
    def loss(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return ((first[..., None] * x[:, 0] + second[..., None] * x[:, 1] - y[:, 0]) ** 2).mean(axis=-1)

    figure, size = loss_paths(paths, loss), len(next(iter(paths.values())))
    shards = [(slice(rank, None, size), "x", _colour(rank), f"best for rank {rank}'s examples") for rank in range(size)]
    for rows, marker, colour, label in (*shards, (slice(None), "+", "black", "best for all examples")):
        best = np.linalg.lstsq(x[rows], y[rows], rcond=None)[0].ravel()
        for axes in figure.axes:
            axes.plot(*best, marker, color=colour, markersize=9, markeredgewidth=2, zorder=5, label=label)
    figure.axes[-1].legend(fontsize=9, **plots.BESIDE)
    return figure


def _ranks_paths(axes: Axes, tracks: Sequence[np.ndarray], labels: Sequence[str]) -> None:
    """Draw the path of each rank."""
    for rank, track in enumerate(tracks):
        later = len(tracks) - 1 - rank
        axes.plot(*track.T, "-o", color=_colour(rank), linewidth=1.5 + 2.5 * later, markersize=3, label=labels[rank])
        axes.plot(*track[-1], "s", color=_colour(rank), markersize=8 + 4 * later, markerfacecolor="none",
                  markeredgewidth=1.8)
    for start in np.unique([track[0] for track in tracks], axis=0):
        axes.annotate("start", start, xytext=(8, 8), textcoords="offset points", fontsize=9)


def three_judges(train: int, validation: int, test: int) -> Figure:
    """Draw the three subsets of a data set as one bar, each with the one thing that its images decide.

    Args:
        train, validation, test: Numbers of images.
    """
    figure = plots.empty(WIDTH, 2.6)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))  # One unit of the axes is one inch.
    axes.set(xlim=(0, WIDTH), ylim=(0, 2.6))
    axes.axis("off")
    judges = (("training", train, "move the weights", "in every step"),
              ("validation", validation, "choose", "a trial, a learning rate, an epoch"),
              ("test", test, "report", "once, after the last choice"))
    for rank, (name, images, deed, when) in enumerate(judges):
        x = 1.55 + 2.95 * rank
        _box(axes, x, 2.0, 2.9, 0.55, f"{images:,} {name} images", 11, _colour(rank))
        _arrow(axes, (x, 1.7), (x, 1.2), _colour(rank))
        axes.text(x, 0.95, deed, ha="center", va="center", fontsize=12, weight="bold")
        axes.text(x, 0.62, when, ha="center", va="center", fontsize=10, color="0.25")
    axes.text(WIDTH / 2, 0.2, "An image with two of these tasks makes the later figure too good.", ha="center",
              va="center", fontsize=10)
    return figure


def running_mean(updates: Sequence[int] = (24, 72), momentum: float = 0.9) -> Figure:
    """Draw the mean of one channel in each training batch, invented, and batch norm's running mean, which follows it.

    Args:
        updates: Steps at which a training may end, each with the gap between the two and the weight of the start value.
        momentum: Weight of the old running mean in each update of it.
    """
    steps = np.arange(max(updates) + 1)
    batch = 1 - np.exp(-steps / 25)
    running = np.zeros(len(steps))
    for step in steps[1:]:
        running[step] = momentum * running[step - 1] + (1 - momentum) * batch[step]
    figure = plots.empty(WIDTH, 3.2)
    axes = figure.subplots()
    axes.plot(steps, batch, color=_colour(0), label="mean in the batch: normalizes in training")
    axes.plot(steps, running, color=_colour(1), label="running mean: normalizes in the test")
    for end in updates:
        axes.vlines(end, running[end], batch[end], color="0.3", linewidth=2)
        axes.annotate(f"after {end} updates: {batch[end] - running[end]:.2f} behind;\nthe start value still weighs "
                      f"${momentum:g}^{{{end}}}$ = {100 * momentum**end:.1g} %", (end, running[end]), (0, -24),
                      textcoords="offset points", ha="right" if end == max(updates) else "left", va="top", fontsize=9)
    axes.set(xlabel="updates (steps of all workers together)", ylabel="mean of one channel (invented)", ylim=(0, 1.05))
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2, fontsize=9)
    return _padded(figure)


def _padded(figure: Figure) -> Figure:
    """Leave a margin around a figure, and return it."""
    figure.set_layout_engine("constrained", w_pad=0.1, h_pad=0.1)  # In inches.
    return figure


def _check_ranks(n: int, fewest: int, most: int = MOST_RANKS) -> None:
    if not fewest <= n <= most:
        raise LabError(f"this figure shows {fewest} to {most} ranks, not {n}")


def _colour(rank: int) -> str:
    return plots.RANK_COLOURS[rank % len(plots.RANK_COLOURS)]


def _ink_on(colour: Any) -> str:
    """Return the colour of a text on a background, by its relative luminance; source: ITU-R BT.709."""
    from matplotlib.colors import to_rgb

    return "black" if np.dot(to_rgb(colour), (0.2126, 0.7152, 0.0722)) > 0.4 else "white"


def _box(axes: Axes, x: float, y: float, wide: float, high: float, text: str, size: float,
         colour: str = "0.93") -> None:
    """Draw a box around (x, y) with a text in it."""
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x - wide / 2, y - high / 2), wide, high, facecolor=colour, edgecolor="0.3",
                             linewidth=0.8))
    axes.text(x, y, text, ha="center", va="center", fontsize=size, color=_ink_on(colour))


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str, width: float = 1.6) -> None:
    from matplotlib.patches import FancyArrowPatch

    axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=9, shrinkA=0, shrinkB=0, color=colour,
                                   linewidth=width, zorder=4))


def _si(value: float, unit: str) -> str:
    """Return a quantity with a decimal prefix: "1.25 GB/s", "50 µs"."""
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n")):
        if abs(value) >= 0.9995 * factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def subsets_and_shards(train: int, validation: int, test: int, n: int = 2) -> Figure:
    """Draw the three subsets of a data set as one bar, with what each is for, and below it the shards of n workers.

    Args:
        train, validation, test: Numbers of images.
        n: Number of workers, from 1 to 4.

    Raises:
        LabError: More workers than the figure can show.
    """
    _check_ranks(n, 1, 4)
    high = 2.3 + 0.45 * n
    figure = plots.empty(WIDTH, high)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))  # One unit of the axes is one inch.
    axes.set(xlim=(0, WIDTH), ylim=(0, high))
    axes.axis("off")
    left, top, scale = 1.1, high - 0.35, 7.7 / (train + validation + test)
    texts = ((train, "training", "moves the weights", "in every step"),
             (validation, "validation", "chooses", "epoch, network"),
             (test, "test", "reports", "once, at the end"))
    for images, name, task, when in texts:
        wide = scale * images
        middle = left + wide / 2
        _box(axes, middle, top, wide, 0.4, f"{images:,} {name}", 10)
        _arrow(axes, (middle, top - 0.25), (middle, top - 0.6), "0.4")
        axes.text(middle, top - 0.78, task, ha="center", va="center", fontsize=11, weight="bold")
        axes.text(middle, top - 1.02, when, ha="center", va="center", fontsize=9, color="0.25")
        for rank, shard in enumerate([len(range(rank, images, n)) for rank in range(n)]):
            centre = left + (rank + 0.5) * wide / n
            _box(axes, centre, top - 1.45 - 0.45 * rank, wide / n - 0.04, 0.36, f"{shard:,}", 10, _colour(rank))
        left += wide
    axes.text(0.15, top, "all images", va="center", fontsize=10)
    for rank in range(n):
        axes.text(0.15, top - 1.45 - 0.45 * rank, f"rank {rank}", va="center", fontsize=10, weight="bold")
    axes.text(WIDTH / 2, 0.2, "One split for all ranks. Each trains on its shard of the first subset and evaluates its "
              "shards of the other two.", ha="center", va="center", fontsize=9.5)
    return figure
