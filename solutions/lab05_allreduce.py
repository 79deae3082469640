"""Lab 5."""

from labs.results import records


def q1(runs):
    """In a ring, each byte crosses a link 2 (n - 1) / n times."""
    (run,) = runs
    n, rows = run["layout"]["size"], records.rows_of(runs, "collectives")
    mine = rows[(rows["collective"] == "allreduce") & (rows["library"] == f"Horovod over {run['layout']['backend']}")]
    largest = mine.loc[mine["bytes"].idxmax()]
    return largest["bytes"] / largest["seconds"] * 2 * (n - 1) / n / 1e9


def q2(runs):
    """Workers exchange one gradient per parameter, whatever the batch."""
    (run,) = runs
    return 2 * (run["layout"]["size"] - 1) * run["metrics"]["gradient_bytes"]


def q3(runs):
    """Each step sends as much as before, and an epoch has fewer steps."""
    steps = records.rows_of(runs, "wire").sort_values("batch_size")["steps_per_epoch"]
    return steps.iloc[-1] / steps.iloc[0]


def q4(runs):
    """The weights and the optimizer's state are sent once, at the start."""
    messages = records.rows_of(runs, "messages").set_index("kind")["bytes"].drop("gradients")
    return messages.astype(float).idxmax()
