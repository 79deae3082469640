"""Lab 0."""


def q1(runs):
    """Throughput over throughput; both runs have the same settings."""
    one, many = runs
    return many["timings"]["images_per_sec"] / one["timings"]["images_per_sec"]


def q2(runs):
    """The speedup as a share of the number of workers."""
    return q1(runs) / runs[1]["layout"]["size"]
