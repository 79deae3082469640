"""Draw the pages' figures that have no data: docs/pictures/NAME.svg for each function of DRAWINGS.

    python notebooks/drawings.py

A figure is 9 inches wide and has a white background. Rank r has the same colour in all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Patch, Rectangle

from labs.pages import at_scale as model
from labs.pages import lab05, plots
from labs.results import cost_model
from labs.run import atomic
from labs.run.paths import ROOT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 9.0
GREY, DARK = "0.88", "0.35"


def step_cost() -> Figure:
    """Draw the time of one worker's step, a + c b, as a bar per batch size, with its throughput."""
    fixed, per_image, batch_sizes = 0.006, 0.0004, (8, 32, 128)
    figure = plots.empty(WIDTH, 1.5 + 0.45 * len(batch_sizes))
    axes = figure.subplots()
    rows = range(len(batch_sizes))
    varying = [1e3 * per_image * size for size in batch_sizes]
    _bar(axes, rows, 1e3 * fixed, 0, "0.75", label="fixed cost: $a$")
    _bar(axes, rows, varying, 1e3 * fixed, _colour(0), label=r"images: $c\,b$")
    longest = 1e3 * fixed + max(varying)
    for row, size in zip(rows, batch_sizes, strict=True):
        seconds = fixed + per_image * size
        axes.text(1e3 * seconds + 0.012 * longest, row, f"{size / seconds:,.0f} images/s; {fixed / seconds:.0%} fixed",
                  va="center", fontsize=9)
    axes.set(xlim=(0, 1.45 * longest), xlabel="time of one step (milliseconds)", ylabel="batch size $b$ (images)")
    _lanes(axes, rows, [str(size) for size in batch_sizes])
    axes.set_title(f"One step: $a$ = {1e3 * fixed:g} ms, $c$ = {1e6 * per_image:g} µs per image, so at most 1 / $c$ = "
                   f"{1 / per_image:,.0f} images/s", fontsize=11)
    axes.legend(fontsize=9, **plots.BESIDE)
    return _padded(figure)


def data_parallel() -> Figure:
    """Draw one step of two workers: equal weights, two shards, two gradients, their mean, equal updates."""
    figure, axes = _canvas(5.3)
    axes.text(WIDTH / 2, 5.05, "One training step on 2 workers", ha="center", va="center", fontsize=12)
    heights = {"weights": 4.3, "shard": 3.5, "gradient": 2.65, "mean": 1.75, "update": 0.9, "again": 0.25}
    texts = {"weights": ("1  Equal weights", "broadcast once, at the start"),
             "shard": ("2  A batch for each", "of its shard; in all $B = N\\,b$"),
             "gradient": ("3  Forward, backward", "each on its own images"),
             "mean": ("4  All-reduce", "only gradients are sent"),
             "update": ("5  Equal updates", r"learning rate $\eta$"),
             "again": ("", "ready for the next step")}
    for row, (heading, text) in texts.items():
        y = heights[row]
        axes.text(0.15, y + 0.1, heading, va="center", fontsize=10.5, weight="bold")
        axes.text(0.36, y - 0.1 if heading else y, text, va="center", fontsize=9, color="0.25")
    for rank, x in enumerate((4.25, 7.25)):
        _rank_column(axes, heights, rank, x)
    for row, sign in (("weights", "="), ("gradient", r"$\neq$"), ("update", "="), ("again", "=")):
        axes.text(5.75, heights[row], sign, ha="center", va="center", fontsize=10)
    _box(axes, 5.75, heights["mean"], 5.9, 0.4, "all-reduce: $g =$ $(g_0 + g_1)\\,/\\,2$", 10)
    return figure


def _rank_column(axes: Axes, heights: dict[str, float], rank: int, x: float) -> None:
    """Draw what one rank of `data_parallel` does, from top to bottom."""
    colour, wide = _colour(rank), 1.25
    axes.text(x, 4.72, f"rank {rank}", ha="center", va="center", fontsize=9, weight="bold")
    _box(axes, x, heights["weights"], wide, 0.34, "weights $w$", 9)
    for image in range(4):
        axes.add_patch(Rectangle((x + (image - 2) * 0.24 + 0.03, heights["shard"] - 0.09), 0.18, 0.18,
                                 facecolor=colour, edgecolor="black", linewidth=0.6))
    axes.text(x, heights["shard"] - 0.24, "$b$ images", ha="center", va="center", fontsize=9)
    _box(axes, x, heights["gradient"], wide, 0.34, f"gradient $g_{rank}$", 9, colour)
    _box(axes, x, heights["update"], wide, 0.34, r"$w \leftarrow w - \eta\,g$", 9)
    _box(axes, x, heights["again"], wide, 0.3, "weights $w$", 9)
    for above, below, ink in ((4.11, 3.68, "0.4"), (3.17, 2.84, colour), (2.46, 1.98, colour), (1.52, 1.09, "0.4"),
                              (0.71, 0.42, "0.4")):
        _arrow(axes, (x, above), (x, below), ink)


def epoch_over_time() -> Figure:
    """Draw an epoch of one worker above an epoch of two: its start, then compute and communication of each step."""
    compute, communication, start = 1.0, 0.25, 0.3
    figure = plots.empty(WIDTH, 2.85)
    axes = figure.subplots()
    lanes = [(0, 4, compute, "1 worker, rank 0"), (0, 2, compute + communication, "2 workers, rank 0"),
             (1, 2, compute + communication, "2 workers, rank 1")]
    rows = (0, 1.35, 2.35)
    for y, (rank, steps, step, _) in zip(rows, lanes, strict=True):
        _bar(axes, y, start, 0, GREY, high=0.7)
        for began in (start + number * step for number in range(steps)):
            _bar(axes, y, compute, began, _colour(rank), high=0.7)
            _bar(axes, y, step - compute, began + compute, DARK, high=0.7)
            axes.text(began + compute / 2, y, "b images", ha="center", va="center", fontsize=8,
                      color=_ink_on(_colour(rank)))
    alone, together = (start + steps * step for _, steps, step, _ in lanes[:2])
    axes.axvline(alone / 2, color="0.3", linestyle=":", zorder=0)
    _lanes(axes, rows, [lane[3] for lane in lanes])
    axes.set(xlim=(0, 1.02 * alone), xlabel="seconds since the epoch began")
    axes.set_title(f"T(1) = {alone:.3g} s, T(2) = {together:.3g} s: S(2) = {alone / together:.2f}, not 2", fontsize=11)
    figure.legend(handles=[
        Patch(facecolor=_colour(0), edgecolor="black", label="compute (a rank's colour): divided among the workers"),
        Patch(facecolor=DARK, edgecolor="black", label="communication: added in every step"),
        Patch(facecolor=GREY, edgecolor="black", label="start of the epoch: not divided"),
        Line2D([], [], color="0.3", linestyle=":", label="ideal: T(1) / 2")],
        loc="outside lower center", ncols=2, fontsize=8)
    return _padded(figure)


def one_or_two() -> Figure:
    """Draw a step of one worker above steps of two workers that halve its images, one per link."""
    fixed, compute, exchanges = 0.004, 0.044, {"fast link": 0.003, "slow link": 0.03}
    alone = fixed + compute
    bars = {"1 worker": (compute, 0.0), **{f"2 workers, {name}": (compute / 2, seconds)
                                           for name, seconds in exchanges.items()}}
    figure = plots.empty(WIDTH, 1.7 + 0.45 * len(bars))
    axes = figure.subplots()
    longest = max(fixed + sum(bar) for bar in bars.values())
    for y, (images, exchange) in enumerate(bars.values()):
        left = 0.0
        for seconds, colour in ((fixed, GREY), (images, _colour(0)), (exchange, DARK)):
            _bar(axes, y, 1e3 * seconds, 1e3 * left, colour)
            left += seconds
        axes.text(1e3 * (left + 0.012 * longest), y, f"S = {alone / left:.2f}" if y else "", va="center", fontsize=10)
    axes.axvline(1e3 * alone, color="0.3", linestyle=":", zorder=0)
    _lanes(axes, range(len(bars)), list(bars))
    axes.set(xlim=(0, 1.15e3 * longest), xlabel="time of one step (milliseconds)")
    axes.set_title("The same global batch: half of the images each, and an exchange", fontsize=11)
    figure.legend(handles=[
        Patch(facecolor=GREY, edgecolor="black", label="$a$: fixed, not divided"),
        Patch(facecolor=_colour(0), edgecolor="black", label=r"images: $c\,B$, then $c\,B/2$"),
        Patch(facecolor=DARK, edgecolor="black", label="$x$: the exchange"),
        Line2D([], [], color="0.3", linestyle=":", label="$T_1$")], loc="outside lower center", ncols=4, fontsize=9)
    return _padded(figure)


def weak_and_strong() -> Figure:
    """Draw the images of one step by rank: weak scaling keeps the batch of each, strong scaling that of all."""
    batch, sizes = 128, (1, 2, 4)
    figure = plots.empty(WIDTH, 1.6 + 0.5 * len(sizes))
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for axes, kind, share in zip(panels, ("weak", "strong"), (lambda n: batch, lambda n: batch // n), strict=True):
        for y, n in enumerate(sizes):
            for rank in range(n):
                _bar(axes, y, share(n), rank * share(n), _colour(rank))
                axes.text((rank + 0.5) * share(n), y, f"{share(n)}", ha="center", va="center", fontsize=8,
                          color=_ink_on(_colour(rank)))
        axes.set_title(f"{kind} scaling: {'b' if kind == 'weak' else 'B = N b'} is fixed", fontsize=11)
        axes.set_xlabel("images of one step, by rank")
        axes.spines[["top", "right"]].set_visible(False)
    _lanes(panels[0], range(len(sizes)), [str(n) for n in sizes])
    panels[0].set_ylabel("workers N (ranks)")
    return _padded(figure)


def node_cuts() -> Figure:
    """Draw one node's cores cut into processes x threads, above the three stages that a step's images pass through."""
    cores, processes = 28, (1, 2, 4)
    figure = plots.empty(WIDTH, 3.6)
    figure.suptitle(f"A node of {cores} cores as processes x threads, and the three stages of a step", fontsize=11)
    grid, columns = figure.add_gridspec(2, len(processes), height_ratios=(1.15, 1)), cores // 4
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


def ring() -> Figure:
    """Draw a ring all-reduce of four ranks as grids of ranks x chunks, a panel per step, simulated by `ring_steps`.

    A cell has a stripe for each rank whose values its sum contains, in that rank's colour; a complete sum has a bold
    frame. An arrow is a chunk that was sent in this step.
    """
    n = 4
    # Rank r starts with the unit vector r in every chunk, so that each sum counts how often it contains each rank.
    states = lab05.ring_steps([np.tile(np.eye(n, dtype=int)[rank], (n, 1)) for rank in range(n)])
    message = states[0].values[0].nbytes
    figure = plots.empty(WIDTH, 2 * (0.6 * n + 0.7) + 1)
    for number, (axes, state) in enumerate(zip(figure.subplots(2, n - 1).flat, states[1:], strict=True), 1):
        _ring_panel(axes, state, number, message)
    sent = states[-1].sent_bytes.max() / message
    figure.suptitle(f"Ring all-reduce of M bytes on N = {n} ranks: {2 * (n - 1)} steps,\n"
                    f"each rank sends 2 (N - 1) / N M = {round(n * sent)}/{n} M = {sent:.3g} M", fontsize=11)
    entries: list[Any] = [Patch(color=_colour(rank), label=f"values of rank {rank}") for rank in range(n)]
    entries.append(Patch(facecolor="none", edgecolor="black", linewidth=2, label="sum over all ranks"))
    entries.append(Line2D([], [], color="0.3", marker="v", linewidth=2,
                          label="sent to the next rank (last: to rank 0)"))
    figure.legend(handles=entries, loc="outside lower center", ncols=3, fontsize=8)
    return _padded(figure)


def _ring_panel(axes: Axes, state: lab05.RingState, number: int, message: int) -> None:
    """Draw one state of the ring: its cells and what was sent."""
    n, high = len(state.values), 0.56
    for rank, chunk in np.ndindex(n, n):
        counts = state.values[rank, chunk]
        for other in np.flatnonzero(counts):
            axes.add_patch(Rectangle((chunk - 0.4 + 0.8 * other / n, rank - high / 2), 0.8 / n, high, linewidth=0,
                                     facecolor=_colour(int(other))))
        complete = bool((counts == 1).all())
        axes.add_patch(Rectangle((chunk - 0.4, rank - high / 2), 0.8, high, facecolor="none", zorder=3,
                                 edgecolor="black" if complete else "0.6", linewidth=2 if complete else 0.8))
    for rank in range(n):
        chunk = (rank - number + 1) % n
        if rank < n - 1:
            _arrow(axes, (chunk, rank + high / 2), (chunk, rank + 1 - high / 2), _colour(rank), 2)
        else:  # From the last rank to the first: out at the bottom, in at the top.
            _arrow(axes, (chunk, rank + high / 2), (chunk, rank + 0.8), _colour(rank), 2)
            _arrow(axes, (chunk, -0.8), (chunk, -high / 2), _colour(rank), 2)
    phase = "reduce-scatter" if number < n else "all-gather"
    sent = round(n * state.sent_bytes.max() / message)
    axes.set_title(f"step {number}, {phase}\nsent so far: {sent}/{n} M", fontsize=9)
    axes.set(xlim=(-0.6, n - 0.4), ylim=(n - 0.15, -0.85))
    axes.set_xticks(range(n), list(map(str, range(n))), fontsize=8)
    axes.set_yticks(range(n), [f"rank {rank}" for rank in range(n)], fontsize=8)
    axes.set_xlabel("chunk of M / N bytes", fontsize=8)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def topologies() -> Figure:
    """Draw the seconds of four all-reduces over the message size on logarithmic axes, from `cost_model`'s formulas."""
    n, alpha, bandwidth = 8, 50e-6, 1.25e9
    sizes = np.geomspace(8, 1e9, 200)
    figure = plots.empty(WIDTH, 4.4)
    axes = figure.subplots()
    styles = {"naive": (":", "0.45"), "tree": ("--", "0.25"), "ring": ("-", "black"),
              "halving-doubling": ("-.", plots.COLOURS[1])}
    costs = (cost_model.naive_seconds, cost_model.tree_seconds, cost_model.ring_seconds, cost_model.halving_seconds)
    for cost, (name, (style, colour)) in zip(costs, styles.items(), strict=True):
        axes.plot(sizes, [cost(size, n, alpha, bandwidth) for size in sizes], style, color=colour, linewidth=2.2,
                  label=name)
    axes.plot(sizes, 2 * (n - 1) / n * sizes / bandwidth, color="0.7", linewidth=1, zorder=1,
              label=r"no latency: $2\,(N-1)/N \cdot \beta M$")
    # A tree has 3 levels: 2 * 3 (alpha + M / bandwidth) = 2 * 7 (alpha + M / (8 bandwidth)).
    even = (7 - 3) * alpha * bandwidth / (3 - 7 / 8)
    axes.axvline(even, color="0.7", linewidth=1, linestyle="-.", zorder=1)
    axes.set(xscale="log", yscale="log", ylim=(cost_model.tree_seconds(8, n, alpha, bandwidth) / 3, None),
             xlabel="array M (bytes)", ylabel="time of one all-reduce (seconds)")
    axes.set_title(f"All-reduce on {n} ranks: latency {_si(alpha, 's')}, {_si(bandwidth, 'B/s')} per link\n"
                   f"up to {_si(even, 'B')} the tree is faster, above it the ring", fontsize=11)
    axes.xaxis.set_major_formatter(lambda value, _: _si(value, "B"))
    axes.yaxis.set_major_formatter(lambda value, _: _si(value, "s"))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=9, **plots.BESIDE)
    return _padded(figure)


def three_judges() -> Figure:
    """Draw the three subsets of lab 9's embedded data as boxes, each with the one thing that its images decide."""
    figure, axes = _canvas(2.6)
    judges = (("training", 272, "move the weights", "in every step"),
              ("validation", 88, "choose", "a trial, a learning rate, an epoch"),
              ("test", 1020, "report", "once, after the last choice"))
    for rank, (name, images, deed, when) in enumerate(judges):
        x = 1.55 + 2.95 * rank
        _box(axes, x, 2.0, 2.9, 0.55, f"{images:,} {name} images", 11, _colour(rank))
        _arrow(axes, (x, 1.7), (x, 1.2), _colour(rank))
        axes.text(x, 0.95, deed, ha="center", va="center", fontsize=12, weight="bold")
        axes.text(x, 0.62, when, ha="center", va="center", fontsize=10, color="0.25")
    axes.text(WIDTH / 2, 0.2, "An image with two of these tasks makes the later figure too good.", ha="center",
              va="center", fontsize=10)
    return figure


def running_mean() -> Figure:
    """Draw the mean of one channel in each training batch, invented, and batch norm's running mean behind it."""
    updates, momentum = (24, 72), 0.9
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


def subsets_and_shards() -> Figure:
    """Draw the three subsets of lab 10's embedded data, with what each is for, and the shards of two workers."""
    n, high, left = 2, 3.2, 1.1
    figure, axes = _canvas(high)
    texts = ((614, "training", "moves the weights", "in every step"), (155, "validation", "chooses", "epoch, network"),
             (196, "test", "reports", "once, at the end"))
    top, scale = high - 0.35, 7.7 / sum(images for images, *_ in texts)
    axes.text(0.15, top, "all images", va="center", fontsize=10)
    for rank in range(n):
        axes.text(0.15, top - 1.45 - 0.45 * rank, f"rank {rank}", va="center", fontsize=10, weight="bold")
    for images, name, task, when in texts:
        wide = scale * images
        middle = left + wide / 2
        _box(axes, middle, top, wide, 0.4, f"{images:,} {name}", 10)
        _arrow(axes, (middle, top - 0.25), (middle, top - 0.6), "0.4")
        axes.text(middle, top - 0.78, task, ha="center", va="center", fontsize=11, weight="bold")
        axes.text(middle, top - 1.02, when, ha="center", va="center", fontsize=9, color="0.25")
        for rank in range(n):
            _box(axes, left + (rank + 0.5) * wide / n, top - 1.45 - 0.45 * rank, wide / n - 0.04, 0.36,
                 f"{len(range(rank, images, n)):,}", 10, _colour(rank))
        left += wide
    axes.text(WIDTH / 2, 0.2, "One split for all ranks. Each trains on its shard of the first subset and evaluates its "
              "shards of the other two.", ha="center", va="center", fontsize=9.5)
    return figure


def two_nodes() -> Figure:
    """Draw two nodes of four workers joined by a thin link, and below what depends on the number of all workers."""
    nodes, workers, batch, images, rate = 2, 4, 128, 60_000, 0.001
    figure = plots.empty(WIDTH, 3.3)
    axes, wide, gap, size = figure.subplots(), workers + 0.4, 2.2, nodes * workers
    for rank in range(size):
        left = rank // workers * (wide + gap)
        local = rank % workers
        if not local:
            axes.add_patch(Rectangle((left, 0), wide, 1.5, facecolor="0.95", edgecolor="0.3"))
            axes.text(left + wide / 2, 1.62, f"node{rank // workers + 1}", ha="center", fontsize=10)
        axes.add_patch(Rectangle((left + 0.3 + local, 0.5), 0.8, 0.8, facecolor=_colour(rank), edgecolor="black"))
        axes.text(left + 0.7 + local, 0.24, f"rank {rank}\nlocal {local}", ha="center", va="center", fontsize=7.5)
    axes.plot([wide, wide + gap], [0.9, 0.9], color="0.2", linewidth=1.2)
    axes.text(wide + gap / 2, 1.0, "network", ha="center", fontsize=9)
    axes.text(wide + gap / 2, 0.62, "slower than\na node's memory", ha="center", va="center", fontsize=7.5)
    lines = (f"hvd.size() = {nodes} x {workers} = {size} workers",
             f"global batch = {size} x {batch} = {size * batch:,} images",
             f"learning rate, linear rule = {size} x {rate:g} = {size * rate:g}",
             f"steps per epoch = {images:,} / {size * batch:,}, rounded up = {-(-images // (size * batch))}")
    for row, line in enumerate(lines):
        axes.text(wide + gap / 2, -0.45 - 0.36 * row, line, ha="center", fontsize=10)
    axes.set(xlim=(-0.2, 2 * wide + gap + 0.2), ylim=(-1.75, 1.95))
    axes.set_axis_off()
    return figure


def at_scale() -> Figure:
    """Draw docs/speed.md's efficiencies: of the measured steps, without the slowest 1 % of them, of equal steps."""
    steps = pd.read_csv(ROOT / "data/reference/step_times.csv")["step_seconds"].to_numpy()
    settings = {"as measured": steps, "without the slowest 1 %": steps[steps <= np.quantile(steps, 0.99)],
                "all steps equal": steps.mean()}
    (axes,), workers = plots.panels(1, 3.4, WIDTH), [1, 8, 64, 512, 4096]
    for colour, (label, times) in zip(plots.COLOURS, settings.items(), strict=False):
        predicted = [model.predict(n, times, 4 * 1_199_882, workers_per_node=8).efficiency for n in workers]
        axes.plot(workers, predicted, "-o", color=colour, label=label)
    axes.set_xscale("log", base=2)
    axes.set_xticks(workers, [f"{n:,}" for n in workers])
    axes.set(xlabel="workers", ylabel="efficiency: step of one / step of n", ylim=(0, 1.05))
    return plots.finish(axes)


DRAWINGS: dict[str, Callable[[], Figure]] = {draw.__name__: draw for draw in (
    step_cost, data_parallel, epoch_over_time, one_or_two, weak_and_strong, node_cuts, ring, topologies, three_judges,
    running_mean, subsets_and_shards, two_nodes, at_scale)}


def main() -> None:
    """Write all figures; the same program writes the same bytes."""
    mpl.rcParams["svg.hashsalt"] = "labs"
    for name, draw in DRAWINGS.items():
        with atomic.writing(ROOT / f"docs/pictures/{name}.svg") as file:
            draw().savefig(file, format="svg", metadata={"Date": None})


def _canvas(high: float) -> tuple[Figure, Axes]:
    """Return a figure and its axes, of which one unit is one inch."""
    figure = plots.empty(WIDTH, high)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(0, high))
    axes.axis("off")
    return figure, axes


def _padded(figure: Figure) -> Figure:
    """Leave a margin around a figure, and return it."""
    figure.set_layout_engine("constrained", w_pad=0.1, h_pad=0.1)  # In inches.
    return figure


def _bar(axes: Axes, y: Any, length: Any, left: float, colour: str, high: float = 0.62,
         label: str | None = None) -> None:
    axes.barh(y, length, high, left, color=colour, edgecolor="black", linewidth=0.8, label=label)


def _lanes(axes: Axes, rows: Sequence[float], names: Sequence[str]) -> None:
    """Name the rows of bars, the first at the top."""
    axes.set_yticks(rows, names)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)


def _colour(rank: int) -> str:
    return plots.RANK_COLOURS[rank]


def _ink_on(colour: Any) -> str:
    """Return the colour of a text on a background, by its relative luminance; source: ITU-R BT.709."""
    return "black" if np.dot(to_rgb(colour), (0.2126, 0.7152, 0.0722)) > 0.4 else "white"


def _box(axes: Axes, x: float, y: float, wide: float, high: float, text: str, size: float,
         colour: str = "0.93") -> None:
    """Draw a box around (x, y) with a text in it."""
    axes.add_patch(Rectangle((x - wide / 2, y - high / 2), wide, high, facecolor=colour, edgecolor="0.3",
                             linewidth=0.8))
    axes.text(x, y, text, ha="center", va="center", fontsize=size, color=_ink_on(colour))


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str, width: float = 1.6) -> None:
    axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=9, shrinkA=0, shrinkB=0, color=colour,
                                   linewidth=width, zorder=4))


def _si(value: float, unit: str) -> str:
    """Return a quantity with a decimal prefix: "1.25 GB/s", "50 µs"."""
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n")):
        if abs(value) >= 0.9995 * factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


if __name__ == "__main__":
    main()
