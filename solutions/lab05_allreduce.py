"""Lab 5."""

from labs.results import records


def q1(runs):
    """In a ring all-reduce, each link carries 2 (N - 1) / N times the message."""
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


def ring(chunks):
    """In step s, rank r sends chunk r - s. All messages of a step are made before any of them is used."""
    size = len(chunks)
    chunks, sent = [list(mine) for mine in chunks], [0] * size
    for step in range(2 * (size - 1)):
        messages = [((rank - step) % size, chunks[rank][(rank - step) % size]) for rank in range(size)]
        for rank, (index, message) in enumerate(messages):
            sent[rank] += message.nbytes
            receiver = chunks[(rank + 1) % size]
            receiver[index] = receiver[index] + message if step < size - 1 else message
    return chunks, sent


def bucket_seconds(sizes, bucket_bytes, alpha, beta):
    """Gradients are not divided, so a bucket is often not full."""
    buckets, space = 0, 0
    for size in sizes:
        if not buckets or size > space:
            buckets, space = buckets + 1, bucket_bytes
        space -= size
    return buckets * alpha + beta * sum(sizes)


bug = {"symptom": "it never ends", "line": "line 33"}
