"""Lab 8."""

from labs.results import laws


def q1(runs):
    """The base has as many threads as each of the workers."""
    one, many = runs
    return many["timings"]["images_per_sec"] / one["timings"]["images_per_sec"] / many["layout"]["size"]


def q2(runs):
    """Solve S = 1 / (s + (1 - s) / n) for s; one speedup gives one share, and tests nothing."""
    n = runs[1]["layout"]["size"]
    return float(laws.amdahl_share(n, n * q1(runs)))


def q3(runs):
    """A network that uses nearly all that its input delivers is waiting for it."""
    (run,) = runs
    return run["timings"]["images_per_sec"] / run["metrics"]["input_images_per_sec"]
