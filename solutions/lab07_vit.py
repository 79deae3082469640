"""Lab 7."""


def q1(runs):
    """In each step, each of n workers sends 2 (n - 1) / n times the gradients. Images are not sent."""
    (run,) = runs
    gradients = 4 * run["metrics"]["parameters"]
    return 2 * (run["layout"]["size"] - 1) * gradients * run["history"][0]["steps"] / 1e6


def q2(runs):
    """Both runs have the same global batch."""
    one, many = runs
    return many["timings"]["images_per_sec"] / one["timings"]["images_per_sec"]


def q3(runs):
    """For a network that is small enough, one worker is the fastest."""
    return max(runs, key=lambda run: run["timings"]["images_per_sec"])["layout"]["size"]
