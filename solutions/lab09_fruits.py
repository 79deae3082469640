"""Lab 9."""


def q1(runs):
    """Rates: in the total seconds of so short a run start and first epoch weigh most."""
    one, many = runs
    return many["timings"]["images_per_sec"] / one["timings"]["images_per_sec"]


def q2(runs):
    """Two runs share a learning rate and differ in workers; the third has one of its own, on the same hardware."""
    rates = [run["config"]["base_lr"] for run in runs]
    (odd,) = (run["run"] for run in runs if rates.count(run["config"]["base_lr"]) == 1)
    return {"run": odd, "setting": "base_lr"}


def q3(runs):
    """What is left of the total are start, first epoch and test."""
    (run,) = runs
    later = sum(row["train_seconds"] + row.get("val_seconds", 0) for row in run["history"][1:])
    return later / run["timings"]["total_seconds"]
