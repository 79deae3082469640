"""Lab 3."""

import math


def q1(runs):
    """The global batch is that of all workers; base_lr suits base_batch_size."""
    (run,) = runs
    return run["layout"]["global_batch_size"] / run["config"]["base_batch_size"]


def q2(runs):
    """Whatever rule the run itself had."""
    base, k = runs[0]["config"]["base_lr"], q1(runs)
    return {"none": base, "sqrt": base * math.sqrt(k), "linear": base * k}


def q3(runs):
    """Equal epochs are not equal updates."""
    small, large = (sum(row["steps"] for row in run["history"]) for run in runs)
    return small / large


def q4(runs):
    """One run each tells two variants apart only if they differ by more than the noise of the validation images."""
    scores = {}
    for run in runs:
        rule, images = run["config"]["scaling"], run["metrics"]["validation_images"]
        warm = run["config"]["warmup_epochs"] > 0 and rule != "none"
        scores[f"{rule}, warmup" if warm else rule] = run["history"][-1]["val_accuracy"]
    best = max(scores.values())
    return [name for name, score in scores.items() if score >= best - 3 * math.sqrt(best * (1 - best) / images)]
