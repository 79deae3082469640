"""Lab 9."""

import math
from statistics import median


def q1(runs):
    """Divide throughputs: the total seconds of a short run are mostly start-up and first epoch."""
    one, many = runs
    return many["timings"]["images_per_sec"] / one["timings"]["images_per_sec"]


def q2(runs):
    """Two runs have the same learning rate and differ in workers; the third has a different one."""
    learning_rates = [run["config"]["base_lr"] for run in runs]
    (outlier,) = (run["run"] for run in runs if learning_rates.count(run["config"]["base_lr"]) == 1)
    return {"run": outlier, "setting": "base_lr"}


def q3(runs):
    """The rest of the total is start-up, first epoch and test."""
    (run,) = runs
    later = sum(row["train_seconds"] + row.get("val_seconds", 0) for row in run["history"][1:])
    return later / run["timings"]["total_seconds"]


def median_prune(values, earlier):
    """The best so far is compared, not the newest: one bad epoch stops nothing."""
    newest = len(values) - 1
    if newest == 0 or len(earlier) < 3:
        return False
    return max(values) < median(other[newest] for other in earlier)


def mcnemar(one, other):
    """A coin for each image that only one model gets right; twice the smaller tail."""
    only_one = sum(a and not b for a, b in zip(one, other, strict=True))
    n = only_one + sum(b and not a for a, b in zip(one, other, strict=True))
    fewer = min(only_one, n - only_one)
    return min(1, 2 * sum(math.comb(n, k) for k in range(fewer + 1)) / 2**n)


bug = {"symptom": "the test accuracy is too good", "line": "line 20"}
