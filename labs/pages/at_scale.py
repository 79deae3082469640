"""A model of a step on thousands of workers: computation, stragglers, all-reduce, failures and checkpoints.

docs/speed.md uses it. It leaves out input, congestion of the network, nodes that are always slow, and failures that
come in groups. Source of the checkpoints' formulas: Daly, "A higher order estimate of the optimum checkpoint interval
for restart dumps", Future Generation Computer Systems 22(3), 2006.
"""

import dataclasses
import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from labs.results import cost_model

NODE_MTBF_HOURS = 54 * 24 * (16384 / 8) / 419
"""Mean time between failures of a node of 8 GPUs, 6,335 hours: 419 interruptions of a job on 16,384 H100 in 54 days.

Source: "The Llama 3 Herd of Models", 2024, arXiv 2407.21783. The kit has not measured any.
"""


@dataclasses.dataclass(frozen=True)
class Prediction:
    """A step: one worker's mean, the wait for the slowest, the exposed all-reduce; and what saves and failures cost."""

    compute_seconds: float
    wait_seconds: float
    allreduce_seconds: float
    exposed_seconds: float
    save_every: float
    lost: float

    @property
    def step_seconds(self) -> float:
        """Seconds of a synchronous step."""
        return self.compute_seconds + self.wait_seconds + self.exposed_seconds

    @property
    def efficiency(self) -> float:
        """Scaling efficiency without failures, at the same batch per worker."""
        return self.compute_seconds / self.step_seconds


def predict(workers: int, step_seconds: ArrayLike, gradient_bytes: float, workers_per_node: int = 1,
            latency: float = 25e-6, bandwidth: float = 1.25e9,
            algorithm: Literal["ring", "tree", "halving", "best"] = "best", overlap: float = cost_model.OVERLAP,
            save_seconds: float = 0.07, restart_seconds: float = 4.0) -> Prediction:
    """Return what a synchronous step on n workers consists of, and what failures cost, at a constant batch per worker.

    Args:
        workers: How many, of all nodes.
        step_seconds: Measured seconds of one worker's steps, [m], or one number: then no worker waits.
        gradient_bytes: Bytes of all gradients: 4 per trainable parameter.
        workers_per_node: How many share a node and its link; above 1 the all-reduce has two levels.
        latency, bandwidth: Seconds of an empty message between two nodes; bytes per second of a node's link.
        algorithm: The all-reduce between nodes; "best" is the fastest of them.
        overlap: Share of the all-reduce that can hide behind the backward pass: 0 to 1.
        save_seconds, restart_seconds: Of a checkpoint; from a failure to the next step. Measured: docs/speed.md.
    """
    mean = slowest_of(step_seconds, 1)
    allreduce = cost_model.allreduce_seconds(gradient_bytes, workers, latency, bandwidth, workers_per_node, algorithm)
    mtbf = 3600 * NODE_MTBF_HOURS / math.ceil(workers / workers_per_node)  # The failure of any node ends the job.
    every = daly_seconds(save_seconds, mtbf)
    return Prediction(mean, slowest_of(step_seconds, workers) - mean, allreduce,
                      cost_model.exposed_seconds(allreduce, mean, overlap), every,
                      float(time_lost(every, save_seconds, restart_seconds, mtbf)))


def slowest_of(step_seconds: ArrayLike, workers: int) -> float:
    """Return the expected seconds of the slowest of n workers, whose steps are independent of each other.

    Of m sorted steps, the slowest of n is the i-th with probability (i/m)^n - ((i-1)/m)^n. With more than about m / 10
    workers the result is too low on average, because no step is longer than the longest measured one.
    """
    steps = np.sort(np.atleast_1d(np.asarray(step_seconds, float)))
    below = (np.arange(len(steps) + 1) / len(steps)) ** workers
    return float(steps @ np.diff(below))


def daly_seconds(save_seconds: float, mtbf_seconds: float) -> float:
    """Return Daly's interval between two checkpoints, in seconds of training; it also holds for long saves."""
    ratio = save_seconds / (2 * mtbf_seconds)
    if ratio >= 1:
        return mtbf_seconds
    return math.sqrt(2 * save_seconds * mtbf_seconds) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save_seconds


def time_lost(save_every, save_seconds: float, restart_seconds: float, mtbf_seconds: float):
    """Return the share of time that checkpoints and failures cost, for random failures, also during saves and restarts.

    An interval of T seconds of training (a number or an array) and its save of C take M exp(R / M)
    (exp((T + C) / M) - 1) seconds on average, with restarts of R and M between two failures.
    """
    length = (save_every + save_seconds) / mtbf_seconds
    return 1 + save_every / mtbf_seconds * np.exp(-restart_seconds / mtbf_seconds - length) / np.expm1(-length)


def first_order(interval, save: float, life: float, restart: float):
    """Return the wasted share of the clock: a save (C) per interval T; per life M half an interval and a restart (R).

    Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974. It holds while all three
    are short compared with the mean time between failures M. All are seconds; T may be an array.
    """
    return save / interval + (interval / 2 + restart) / life
