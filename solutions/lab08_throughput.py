"""Lab 8."""

from labs.course import laws


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
