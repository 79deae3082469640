"""Speedups of course reports, computed from their times in `data/reference`."""

import pandas as pd

from labs.run.paths import ROOT

CODE = r"\b[MCTAF]\d(?:\.\d)?\b"
"""The code of a question of the course reports, such as C3.2."""
TABLES = {"lab02": ("lab02_mnist_accuracy", "train_seconds"), "lab04": ("lab04_speedup", "seconds_per_epoch")}
"""The table of one node's runs, and its times."""


def speedups(lab: str, by: list[str]) -> pd.DataFrame:
    """Return the speedups over one worker with the same `by`: columns size, speedup, scaling_efficiency and `by`."""
    name, time = TABLES[lab]
    table = pd.read_csv(ROOT / f"data/reference/{name}.csv").rename(
        columns={"workers": "size", "batch_size_per_worker": "batch_size"}).set_index([*by, "size"])
    seconds = table[time][table.get("nodes", pd.Series(1, table.index)) == 1].dropna()
    frame = (seconds.xs(1, level="size") / seconds).rename("speedup").reset_index()
    return frame.assign(scaling_efficiency=frame["speedup"] / frame["size"])
