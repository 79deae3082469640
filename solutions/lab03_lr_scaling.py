"""Lab 3."""

import math


def q1(runs):
    """`base_lr` is for `base_batch_size`; the global batch is that of all workers."""
    (run,) = runs
    return run["layout"]["global_batch_size"] / run["config"]["base_batch_size"]


def q2(runs):
    """These do not depend on the rule that the run used."""
    base, k = runs[0]["config"]["base_lr"], q1(runs)
    return {"none": base, "sqrt": base * math.sqrt(k), "linear": base * k}


def q3(runs):
    """With equal epochs, the smaller batch takes more steps."""
    small, large = (sum(row["steps"] for row in run["history"]) for run in runs)
    return small / large


def q4(runs):
    """Two runs differ only if their accuracies do by more than the noise of the validation images."""
    scores = {}
    for run in runs:
        rule, images = run["config"]["scaling"], run["metrics"]["validation_images"]
        warm = run["config"]["warmup_epochs"] > 0 and rule != "none"
        scores[f"{rule}, warmup" if warm else rule] = run["history"][-1]["val_accuracy"]
    best = max(scores.values())
    return [name for name, score in scores.items() if score >= best - 3 * math.sqrt(best * (1 - best) / images)]
