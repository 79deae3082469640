"""Lab 4."""

from labs.results import records


def q1(runs):
    """Each batch size has a base of its own: one worker with that batch size."""
    rates = records.table(runs).pivot_table("images_per_sec", "batch_size", "size")
    return {int(batch): rate for batch, rate in (rates[rates.columns[-1]] / rates[1]).items()}


def q2(runs):
    """Strong scaling: the batch per worker is smaller on several, the global batch is the same."""
    one, many = runs
    return many["timings"]["images_per_sec"] / one["timings"]["images_per_sec"] / many["layout"]["size"]


def q3(runs):
    """What bounds the scaling is not the largest part, but the one that does not shrink as it should."""
    one, many = (run["metrics"] for run in runs)
    size = runs[1]["layout"]["size"]
    return max(("compute", "communication", "input", "other"), key=lambda part: many[f"ledger_{part}_seconds"]
               - one[f"ledger_{part}_seconds"] / size)


def q4(runs):
    """Communication alone: the input is a part of its own."""
    metrics = runs[0]["metrics"]
    return metrics["ledger_communication_seconds"] / metrics["ledger_wall_seconds"]
