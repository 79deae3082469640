"""Lab 8."""

import numpy as np

from labs.pages import laws


def q1(runs):
    """One worker has as many threads as each of several."""
    one, many = runs
    return many["timings"]["images_per_sec"] / one["timings"]["images_per_sec"] / many["layout"]["size"]


def q2(runs):
    """Solve S = 1 / (s + (1 - s) / n) for s. A single speedup cannot test the law."""
    n = runs[1]["layout"]["size"]
    return float(laws.amdahl_share(n, n * q1(runs)))


def q3(runs):
    """Near 1, the training waits for its input."""
    (run,) = runs
    return run["timings"]["images_per_sec"] / run["metrics"]["input_images_per_sec"]


def karp_flatt(n, speedup):
    """Amdahl's law, solved for s."""
    if n < 2:
        raise ValueError("one worker has no serial share")
    return (1 / speedup - 1 / n) / (1 - 1 / n)


def fit_amdahl(n, speedups):
    """The point n = 1 lies at the origin, so it does not matter whether it is left out."""
    if len({each for each in n if each > 1}) < 2:
        raise ValueError("a law is tested by at least two numbers of workers")
    n, speedups = np.asarray(n, float), np.asarray(speedups, float)
    x, y = 1 - 1 / n, 1 / speedups - 1 / n
    return float((x * y).sum() / (x * x).sum())


def input_bound(compute, reading, one_core):
    """Seconds per image add up on one core; side by side the slower stage decides."""
    return 1 / (1 / compute + 1 / reading) if one_core else min(compute, reading)


bug = {"symptom": "more threads compute than the node has cores", "line": "line 17"}
