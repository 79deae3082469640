"""Speedup by transport and model size, and the crossover: the size from which several workers are faster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from labs.results import tables
from labs.run import terminal

if TYPE_CHECKING:
    import pandas as pd

SHAPE = ("width", "depth", "heads", "patch_size", "parameters")
"""Columns in which the models of one crossover may differ."""
COLUMNS = ("parameters", "size", "backend", "global_batch_size", "repeats", "seconds_per_epoch", "test_accuracy",
           "speedup", "verdict", "note")


def summary(runs: Sequence[dict[str, Any]]) -> str:
    """Return a table of the runs as text, and the crossover wherever the size of the model was varied.

    Args:
        runs: Records of lab 7.
    """
    if not any(record["timings"]["images_per_sec"] for record in runs):
        return ""
    if elsewhere := [record for record in runs if record["layout"]["size"] > 1 and record["config"]["backend"] not in
                     ("auto", record["layout"]["backend"].lower())]:
        return "\n".join("nothing is compared: run {run} was to exchange over {config[backend]}, and its gradients "
                         "went over {layout[backend]}".format(**record) for record in elsewhere)
    table = compare(runs)
    grid = tables.grid("", table, COLUMNS)
    several = table[table["size"] > 1].dropna(subset=["speedup"])
    settings = [name for name in table.columns[:table.columns.get_loc("repeats")] if name not in SHAPE]
    lines = [crossover_text(rows) for _, rows in several.groupby(settings, dropna=False)
             if rows["parameters"].nunique() > 1]
    return "\n".join([terminal.table([grid.head, *grid.rows]), *lines])


def compare(runs: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Return a row per model, transport and number of workers: time, accuracy, speedup at the same global batch.

    The column `verdict` is "faster" or "slower" than one worker by more than noise, or "not certain", as without
    repeats. One worker has no verdict.

    Args:
        runs: Records of lab 7.
    """
    import pandas as pd

    from labs.results import records, scaling

    frame = records.table(runs)
    ignored = ("batch_size", "traffic")  # Divided among the workers, and counted after the training.
    by = [*(name for name in scaling.configuration(frame) if name not in ignored), "parameters", "global_batch_size"]
    frame["asked_backend"] = frame["backend"]  # "auto" is one of the others.
    several, alone = frame[frame["size"] > 1], frame[frame["size"] == 1]
    backends = several["asked_backend"].unique() if len(several) else ["none"]
    # One worker uses no transport: its runs are the baseline of each.
    frame = pd.concat([several, *(alone.assign(asked_backend=backend) for backend in backends)])
    table = scaling.speedups(frame, by=by)
    same = frame.groupby([*by, "size", "nodes"], as_index=False, dropna=False)
    verdicts = table["direction"].map({1: "faster", -1: "slower", 0: "not certain"})
    table["verdict"] = verdicts.where(table["size"] > 1, "")
    table = table.merge(same.agg({"test_accuracy": "mean", "backend": "first"}))
    table = table.drop_duplicates([name for name in table if name != "asked_backend"])
    return table.sort_values(["parameters", "size", "backend"], ignore_index=True)


def crossover(rows: pd.DataFrame) -> int | None:
    """Return the number of parameters from which on several workers train all models faster; None if there is none.

    Args:
        rows: From `compare`, of one number of workers and one transport.
    """
    start = None
    for size, verdict in rows[["parameters", "verdict"]].sort_values("parameters", ascending=False).values:
        if verdict != "faster":
            break
        start = int(size)
    return start


def crossover_text(rows: pd.DataFrame) -> str:
    """Return the crossover as a sentence, with what is certain below it; arguments as in `crossover`."""
    start, first = crossover(rows), rows.iloc[0]
    workers = f"{first['size']} workers over {first['backend']} (global batch {first['global_batch_size']})"
    workers += f", links of {first['link']}" if "link" in first else ""
    below = rows if start is None else rows[rows["parameters"] < start]
    unclear = ", ".join(f"{size:,}" for size in below["parameters"][below["verdict"] != "slower"])
    if start is not None:
        text = f"crossover: from {start:,} parameters on, {workers} are faster than one"
    else:
        largest = rows.loc[rows["parameters"].idxmax()]
        how = "slower" if largest["verdict"] == "slower" else "not certain to be faster"
        text = (f"no crossover: on the largest model tried, of {largest['parameters']:,} parameters, {workers} are "
                f"{how} than one")
    if below.empty:
        return f"{text}; no smaller model was tried"
    if unclear:
        return f"{text}; not certain: {unclear} parameters (more --repeats narrow the intervals)"
    return f"{text}; {'below, ' if start is not None else 'for all sizes tried '}one worker is the right answer"
