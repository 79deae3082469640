"""A step on thousands of workers: computation, stragglers, all-reduce, failures and checkpoints.

`predict` takes what was measured of one worker and one link, and returns what n workers would do. `slowest_of` and
`time_lost` are exact for the model; `simulated_slowest` and `simulated_time_lost` check them. docs/at-scale.md has
examples.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from labs.results import cost_model, tables
from labs.run import terminal
from labs.run.errors import LabError

if TYPE_CHECKING:
    import pandas as pd

StepSeconds = float | Sequence[float] | np.ndarray
"""Measured seconds of one worker's steps, [m]; a number stands for steps that all take the same time."""

SAVE_SECONDS = 0.07
"""A checkpoint of 47 MB on a local disk; training waits for it. Measured: docs/speed.md, "Saving"."""
RESTART_SECONDS = 4.0
"""From a worker's death to the first step of the resumed run, without a queue. Measured: docs/reliability.md."""
NODE_MTBF_HOURS = 54 * 24 * (16384 / 8) / 419
"""Mean time between failures of a node of 8 GPUs: 6,335 hours, nine months.

Source: "The Llama 3 Herd of Models", 2024, arXiv 2407.21783: 419 unexpected interruptions of a job on 16,384 H100 in 54
days. The kit has not measured any.
"""
RELIABLE = 10
"""The mean slowest of n workers is an estimate if it depends on at least this many measured steps."""


def slowest_of(step_seconds: StepSeconds, workers: int) -> float:
    """Return the expected seconds of the slowest of n workers, whose steps are independent of each other.

    In a synchronous step all wait for it. Sorted, the measured steps are x(1) <= ... <= x(m); the slowest of n is x(i)
    with probability (i/m)^n - ((i-1)/m)^n. Source: David and Nagaraja, "Order Statistics", 2003, section 2.1, for the
    empirical distribution. It is exact for that distribution, which ends at the slowest measured step. A longer
    measurement finds slower ones. With more than m / RELIABLE workers the result is therefore too low on average.

    Args:
        step_seconds: Seconds of one worker's steps, [m], or one number.
        workers: How many.
    """
    steps = np.sort(_steps(step_seconds))
    below = (np.arange(len(steps) + 1) / len(steps)) ** workers
    return float(steps @ np.diff(below))


def simulated_slowest(step_seconds: StepSeconds, workers: int, steps: int = 1000, seed: int = 1) -> float:
    """Return the mean seconds of the slowest of n workers in simulated steps; it approaches `slowest_of`.

    Args:
        step_seconds: Seconds of one worker's steps, [m]; each worker takes one at random in each step.
        workers: How many.
        steps: Number of steps to simulate.
        seed: Of the random numbers.
    """
    random = np.random.default_rng(seed)
    return float(np.mean([random.choice(_steps(step_seconds), workers).max() for _ in range(steps)]))


def young_seconds(save_seconds: float, mtbf_seconds: float) -> float:
    """Return Young's interval between two checkpoints: sqrt(2 save_seconds mtbf_seconds).

    Source: Young, "A first order approximation to the optimum checkpoint interval", Communications of the ACM 17(9),
    1974. It holds for saves that are short compared with the time between failures.

    Args:
        save_seconds: Seconds of a checkpoint, in which nothing is trained.
        mtbf_seconds: Mean seconds between two failures of the job.
    """
    return math.sqrt(2 * save_seconds * mtbf_seconds)


def daly_seconds(save_seconds: float, mtbf_seconds: float) -> float:
    """Return Daly's interval between two checkpoints, which also holds for long saves.

    sqrt(2 C M) (1 + sqrt(C / (2 M)) / 3 + C / (2 M) / 9) - C for C < 2 M, otherwise M. Source: Daly, "A higher order
    estimate of the optimum checkpoint interval for restart dumps", Future Generation Computer Systems 22(3), 2006.
    The interval is the time of training between two saves, without the save. Arguments as in `young_seconds`.
    """
    young = young_seconds(save_seconds, mtbf_seconds)
    if save_seconds >= 2 * mtbf_seconds:
        return mtbf_seconds
    ratio = save_seconds / (2 * mtbf_seconds)
    return young * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save_seconds


@dataclasses.dataclass(frozen=True)
class TimeLost:
    """Shares of a job's time in which it does not advance."""

    saving: float
    """Writing checkpoints that were completed."""
    repeating: float
    """Training since the last checkpoint, or part of a checkpoint, before a failure."""
    restarting: float
    """From a failure to the next step."""

    @property
    def total(self) -> float:
        """The sum of the three."""
        return self.saving + self.repeating + self.restarting


def time_lost(save_every: float, save_seconds: float, restart_seconds: float, mtbf_seconds: float) -> TimeLost:
    """Return the shares of time that checkpoints and failures cost.

    The times between failures are exponentially distributed: a Poisson process. Failures also come while the job saves
    or restarts. An interval of T seconds of training and its save of C then take M exp(R / M) (exp((T + C) / M) - 1)
    seconds on average, with restarts of R seconds. Source: Daly 2006 (see `daly_seconds`).

    Args:
        save_every: Seconds of training between two saves.
        save_seconds: Seconds of a save.
        restart_seconds: Seconds from a failure to the next step.
        mtbf_seconds: Mean seconds between two failures of the job; infinite: none.
    """
    if math.isinf(mtbf_seconds):
        return TimeLost(save_seconds / (save_every + save_seconds), 0.0, 0.0)
    length, restart = (save_every + save_seconds) / mtbf_seconds, restart_seconds / mtbf_seconds
    # Intervals completed per mean time between failures; the form avoids large exponentials.
    intervals = math.exp(-restart - length) / -math.expm1(-length)
    restarting = -math.expm1(-restart)
    return TimeLost(intervals * save_seconds / mtbf_seconds, 1 - intervals * length - restarting, restarting)


def simulated_time_lost(save_every: float, save_seconds: float, restart_seconds: float, mtbf_seconds: float,
                        failures: int = 10_000, seed: int = 1) -> TimeLost:
    """Return the shares of time lost in a simulated job; they approach those of `time_lost`.

    Args:
        save_every, save_seconds, restart_seconds, mtbf_seconds: As of `time_lost`, all finite.
        failures: Number of failures to simulate.
        seed: Of the random numbers.
    """
    between = np.random.default_rng(seed).exponential(mtbf_seconds, failures)
    restarting = np.minimum(between, restart_seconds)
    saves = (between - restarting) // (save_every + save_seconds)
    trained, saved, restarted = (seconds.sum() / between.sum() for seconds in (saves * save_every, saves * save_seconds,
                                                                              restarting))
    return TimeLost(float(saved), float(1 - trained - saved - restarted), float(restarted))


Algorithm = Literal["ring", "tree", "halving", "best"]


@dataclasses.dataclass(frozen=True)
class Prediction:
    """A step on n workers, and what failures cost."""

    workers: int
    nodes: int
    batch_size: int
    """Images per worker and step."""
    compute_seconds: float
    """Mean step of one worker alone."""
    wait_seconds: float
    """By how much the slowest worker's step exceeds the mean step."""
    wait_is_too_low: bool
    """Whether too few steps were measured for this many workers, so that the wait is too low on average."""
    allreduce_seconds: float
    """The whole all-reduce."""
    exposed_seconds: float
    """The part of the all-reduce that no computation hides."""
    failures_per_hour: float
    """Mean failures of the whole job per hour."""
    save_every: float
    """Seconds of training between two checkpoints."""
    time_lost: TimeLost
    """Shares of time lost to checkpoints and failures."""

    @property
    def step_seconds(self) -> float:
        """Seconds of a synchronous step."""
        return self.compute_seconds + self.wait_seconds + self.exposed_seconds

    @property
    def efficiency(self) -> float:
        """Scaling efficiency without failures: the step of one worker over that of n, at the same batch per worker."""
        return self.compute_seconds / self.step_seconds

    @property
    def images_per_sec(self) -> float:
        """Throughput of all workers, including checkpoints and failures."""
        return self.workers * self.batch_size / self.step_seconds * (1 - self.time_lost.total)


def predict(workers: int, step_seconds: StepSeconds, *, gradient_bytes: float, batch_size: int,
            workers_per_node: int = 1, latency: float = 25e-6, bandwidth: float = 1.25e9,
            algorithm: Algorithm = "best", overlap: float = cost_model.OVERLAP,
            local_bandwidth: float = cost_model.LOCAL_BANDWIDTH, local_latency: float = cost_model.LOCAL_LATENCY,
            save_seconds: float = SAVE_SECONDS, restart_seconds: float = RESTART_SECONDS,
            node_mtbf_hours: float = NODE_MTBF_HOURS, save_every: float | None = None) -> Prediction:
    """Return what a synchronous step on n workers consists of, and what failures cost, at a constant batch per worker.

    A step is the slowest worker's computation, then the part of the all-reduce that a mean step cannot hide
    (`cost_model.exposed_seconds`). The model leaves out input, congestion of the network, nodes that are always slow,
    and failures that come in groups.

    Args:
        workers: How many, of all nodes.
        step_seconds: Measured seconds of one worker's steps, [m], or one number: then no worker waits.
        gradient_bytes: Bytes of all gradients: 4 per trainable parameter.
        batch_size: Images per worker and step.
        workers_per_node: How many share a node and its link; above 1 the all-reduce has two levels.
        latency: Seconds of an empty message between two nodes.
        bandwidth: Bytes per second of a node's link.
        algorithm: The all-reduce between nodes; "best" is the fastest of them.
        overlap: Share of the all-reduce that can hide behind the backward pass: 0 to 1.
        local_bandwidth: Bytes per second between two workers of a node.
        local_latency: Seconds of an empty message between them.
        save_seconds: Seconds of a checkpoint.
        restart_seconds: Seconds from a failure to the next step.
        node_mtbf_hours: Mean hours between two failures of one node; infinite: none fails.
        save_every: Seconds of training between two checkpoints; None: Daly's optimum.

    Raises:
        LabError: A knob has a value outside its range.
    """
    steps = _steps(step_seconds)
    _require("a whole number above 0", lambda value: value >= 1 and value.is_integer(),
             workers=workers, workers_per_node=workers_per_node, batch_size=batch_size)
    _require("above 0", lambda value: value > 0, bandwidth=bandwidth, local_bandwidth=local_bandwidth,
             save_seconds=save_seconds, node_mtbf_hours=node_mtbf_hours,
             save_every=1.0 if save_every is None else save_every)
    _require("a finite number, not below 0", lambda value: 0 <= value < math.inf, gradient_bytes=gradient_bytes,
             latency=latency, local_latency=local_latency, restart_seconds=restart_seconds)
    _require("from 0 to 1", lambda value: 0 <= value <= 1, overlap=overlap)
    if algorithm not in cost_model.ALGORITHMS:
        raise LabError(f"there is no all-reduce {algorithm!r}; choose one of {', '.join(cost_model.ALGORITHMS)}")
    nodes = math.ceil(workers / workers_per_node)
    mean = slowest_of(steps, 1)
    allreduce = cost_model.allreduce_seconds(gradient_bytes, workers, latency, bandwidth, workers_per_node, algorithm,
                                             local_bandwidth, local_latency)
    failures = nodes / node_mtbf_hours  # The failure of any node ends the job.
    mtbf_seconds = 3600 / failures if failures else math.inf
    every = daly_seconds(save_seconds, mtbf_seconds) if save_every is None else save_every
    return Prediction(
        workers, nodes, batch_size, compute_seconds=mean, wait_seconds=slowest_of(steps, workers) - mean,
        wait_is_too_low=len(steps) > 1 and workers * RELIABLE > len(steps), allreduce_seconds=allreduce,
        exposed_seconds=cost_model.exposed_seconds(allreduce, mean, overlap), failures_per_hour=failures,
        save_every=every, time_lost=time_lost(every, save_seconds, restart_seconds, mtbf_seconds),
    )


def table(workers: Sequence[int] = (1, 8, 64, 512, 4096), **knobs) -> pd.DataFrame:
    """Return the predictions for several numbers of workers, one row each; `text` prints it.

    Args:
        workers: Numbers of workers.
        knobs: All other arguments of `predict`.
    """
    import pandas as pd

    return pd.DataFrame([_row(predict(each, **knobs)) for each in workers])


def _row(step: Prediction) -> dict[str, float]:
    return {
        "workers": step.workers, "compute_ms": 1e3 * step.compute_seconds, "wait_ms": 1e3 * step.wait_seconds,
        "wait_is_too_low": step.wait_is_too_low, "allreduce_ms": 1e3 * step.allreduce_seconds,
        "exposed_ms": 1e3 * step.exposed_seconds, "efficiency": step.efficiency,
        "failures_per_hour": step.failures_per_hour, "save_every_s": step.save_every,
        "lost_percent": 100 * step.time_lost.total, "images_per_sec": step.images_per_sec,
    }


HEADS = {"compute_ms": "compute, ms", "wait_ms": "wait, ms", "allreduce_ms": "all-reduce, ms",
         "exposed_ms": "exposed, ms", "failures_per_hour": "failures/h", "save_every_s": "save every, s",
         "lost_percent": "lost, %"}
"""Headings of `table`'s columns as `text` prints them."""


def text(predictions: pd.DataFrame) -> str:
    """Return a table as text for a terminal; ">=" marks a wait that is too low on average.

    Args:
        predictions: From `table`.
    """
    bounds = ["", ">= "]
    waits = [f"{bounds[bound]}{tables.figure(wait)}" for bound, wait in
             predictions[["wait_is_too_low", "wait_ms"]].itertuples(index=False)]
    shown = predictions.assign(wait_ms=waits).drop(columns="wait_is_too_low").rename(columns=HEADS)
    grid = tables.grid("", shown, list(shown))
    return terminal.table([grid.head, *grid.rows])


def _steps(step_seconds: StepSeconds) -> np.ndarray:
    """Return step times as an array [m]."""
    steps = np.atleast_1d(np.asarray(step_seconds, float))
    if steps.ndim != 1 or not len(steps) or not (np.isfinite(steps) & (steps > 0)).all():
        raise LabError("step_seconds has to be the seconds of one worker's steps: a list of numbers above 0, or one")
    return steps


def _require(range_: str, holds: Callable[[float], bool], **values: float) -> None:
    """Raise a LabError for the first value that is not a number in a range.

    Args:
        range_: The range in words.
        holds: Returns whether a number is in it.
        values: By the name of the argument.
    """
    for name, value in values.items():
        if not (isinstance(value, numbers.Real) and holds(float(value))):
            raise LabError(f"{name} is {value!r}; it has to be {range_}")
