"""Lab 5."""

from labs.results import records


def q1(runs):
    """Bus bandwidth can be compared with the link: in a ring each byte goes 2 (n - 1) / n times over it."""
    (run,) = runs
    n, rows = run["layout"]["size"], records.rows_of(runs, "collectives")
    mine = rows[(rows["collective"] == "allreduce") & (rows["library"] == f"Horovod over {run['layout']['backend']}")]
    largest = mine.loc[mine["bytes"].idxmax()]
    return largest["bytes"] / largest["seconds"] * 2 * (n - 1) / n / 1e9


def q2(runs):
    """Gradients cross, one for each parameter: the batch does not matter."""
    (run,) = runs
    return 2 * (run["layout"]["size"] - 1) * run["metrics"]["gradient_bytes"]


def q3(runs):
    """A step sends the same, and an epoch has fewer of them."""
    steps = records.rows_of(runs, "wire").sort_values("batch_size")["steps_per_epoch"]
    return steps.iloc[-1] / steps.iloc[0]


def q4(runs):
    """The weights, and the optimizer's state, once, at the start."""
    messages = records.rows_of(runs, "messages").set_index("kind")["bytes"].drop("gradients")
    return messages.astype(float).idxmax()
