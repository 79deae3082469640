"""Lab 2."""

import math


def q1(runs):
    """Divide throughputs, not total times. Both runs have the same settings."""
    one, many = runs
    return many["timings"]["images_per_sec"] / one["timings"]["images_per_sec"]


def q2(runs):
    """Divide the speedup by the number of workers."""
    return q1(runs) / runs[1]["layout"]["size"]


def q3(runs):
    """A step trains on the batches of all workers."""
    (run,) = runs
    return math.ceil(run["history"][0]["images"] / run["layout"]["global_batch_size"])


def q4(runs):
    """An image is missed by one worker with probability 1 - 1/N, and by all with (1 - 1/N)^N."""
    n = runs[0]["layout"]["size"]
    return 1 - (1 - 1 / n) ** n
