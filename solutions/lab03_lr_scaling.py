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


def scaled_lr(base_lr, batch_size, size, base_batch_size, scaling):
    """k compares the images of a step, of all workers, with those that `base_lr` is for."""
    k = batch_size * size / base_batch_size
    powers = {"none": 0, "linear": 1, "sqrt": 0.5}
    if scaling not in powers:
        raise ValueError(f"no scaling rule {scaling!r}")
    return base_lr * k ** powers[scaling]


def warmup(step, steps_per_epoch, base_lr, size, warmup_epochs):
    """A function of the step, so it rises in every step and is right in a resumed run."""
    end = steps_per_epoch * warmup_epochs
    progress = min(step / end, 1) if end else 1
    return base_lr * (1 + (size - 1) * progress)


bug = {"symptom": "the loss explodes on two workers", "line": "line 24"}
