"""Lab 9."""


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
