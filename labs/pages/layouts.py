"""Layouts of workers on nodes: their accuracy, gradient exchange, and weak and strong scaling."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from labs.results import tables

if TYPE_CHECKING:
    import pandas as pd


def trained(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return lab 11's records of training, without the study "sleep" (until November 2026 also "bandwidth")."""
    return [run for run in runs if not {"cells", "sleep"} & {*run.get("tables", {})}]


def summary(runs: Sequence[dict[str, Any]]) -> str:
    """Return the layouts with their accuracy and exchange, weak and strong scaling, as text.

    Args:
        runs: Records of lab 11.
    """
    runs = trained(runs)
    if not runs:
        return ""
    frame = table(runs)
    varied = [name for name in frame.attrs["varied"] if name != "batch_size"]
    about = [*varied, "layout", "size", "global_batch_size"]
    contents = [("What each layout trains, and what its exchange takes", _with_digits(accuracies(frame)),
                 [*about, "scaled_lr", "seeds", "test_accuracy", "step_ms", "allreduce_ms"])]
    ratios = ["repeats", "images_per_sec", "over", "speedup", "scaling_efficiency", "note"]
    contents += [(f"{kind.capitalize()} scaling", scaled(frame, kind), [*about, *ratios])
                 for kind in ("weak", "strong")]
    shown = [tables.grid(title, rows, columns).text() for title, rows, columns in contents if len(rows)]
    return "\n\n".join([*shown, *_notes(frame)])


def _with_digits(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with accuracies as text of four digits: those of MNIST differ in the fourth."""
    ends = rows[["test_accuracy", "test_accuracy_low", "test_accuracy_high"]].to_numpy()
    rows = rows.drop(columns=["test_accuracy_low", "test_accuracy_high"])
    return rows.assign(test_accuracy=[f"{mean:.4f} [{low:.4f}, {high:.4f}]" for mean, low, high in ends])


def table(runs: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Return a row per run; `attrs["varied"]` names the settings in which they differ."""
    from labs.results import records, scaling

    frame = records.table(runs)
    by = scaling.configuration(frame)
    frame = scaling.numbers(frame, ["images_per_sec"])  # NaN for a run of one epoch.
    frame = frame.assign(
        layout=[*map(tables.format_layout, frame["hosts"], frame["machines"])],
        even=[len(set(Counter(hosts).values())) == 1 for hosts in frame["hosts"]],
        own=frame["machines"] == frame["nodes"], step_ms=1e3 * frame["global_batch_size"] / frame["images_per_sec"],
        allreduce_ms=1e3 * frame.get("allreduce_seconds", math.nan),
    )
    frame.attrs |= {"by": by, "varied": [name for name in by if frame[name].map(str).nunique() > 1]}
    return frame


def accuracies(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row per configuration and layout: test accuracy with its 95 % interval, exchange and step in ms.

    The interval is Student's over the seeds; of fewer than three, 1.96 standard errors sqrt(p (1 - p) / n) of the
    share p of n test images.

    Args:
        frame: From `table`.
    """
    import pandas as pd

    from labs.results import noise

    by, rows = [*frame.attrs["by"], "layout", "nodes", "size", "global_batch_size", "scaled_lr"], []
    for values, same in frame.groupby(by, dropna=False):
        same = same.drop_duplicates("seed", keep="last")  # The same seed run twice is not a repeat.
        right, images = same["test_accuracy"], same["test_images"].iloc[-1]
        half = 1.96 * noise.standard_error(right.mean(), images)
        low, high = noise.mean_interval(right) if len(same) >= tables.LEAST else (
            right.mean() - half, right.mean() + half)
        rows.append(dict(zip(by, values, strict=True)) | {
            "seeds": len(same), "test_accuracy": right.mean(), "test_accuracy_low": low, "test_accuracy_high": high,
            "step_ms": same["step_ms"].median(), "allreduce_ms": same["allreduce_ms"].median()})
    return pd.DataFrame(rows).sort_values(["nodes", "size"], kind="stable", ignore_index=True)


def scaled(frame: pd.DataFrame, kind: Literal["weak", "strong"]) -> pd.DataFrame:
    """Return the speedups of the layouts that can be compared, a row each; `over` names the baseline.

    The baseline of several nodes is one node with as many workers; that of one node is one worker.

    Args:
        frame: From `table`.
        kind: "weak": the batch of one worker is fixed; "strong": the global batch is.
    """
    import pandas as pd

    from labs.results import scaling

    one = frame[frame["nodes"] == 1]
    families = [(1, one)]
    for _, several in frame[(frame["nodes"] > 1) & frame["even"]].groupby(["local_size", "own"]):
        local = int(several["local_size"].iloc[0])
        families.append((local, pd.concat([one[one["size"] == local], several])))
    compared = []
    for base, family in families:
        rows = scaling.speedups(family, base, frame.attrs["by"], kind)
        rows = rows.merge(family.groupby(["size", "nodes"], as_index=False)["layout"].first())
        held = [name for name in rows.columns[:rows.columns.get_loc("repeats")] if name not in ("size", "nodes")]
        partners = rows.groupby(held, dropna=False)["layout"].transform("nunique") > 1
        compared.append(rows[partners & rows["speedup"].notna()].assign(over=f"1 x {base}"))
    rows = pd.concat(compared).drop_duplicates(subset=[*held, "layout", "speedup"])
    if kind == "weak":
        rows["global_batch_size"] = rows["batch_size"] * rows["size"]
    return rows.sort_values(["nodes", "size", "layout"], kind="stable", ignore_index=True)


def _notes(frame: pd.DataFrame) -> Iterator[str]:
    """Yield notes on how to read the tables."""
    yield ("layout: nodes x workers on each. Accuracy [95 % interval]: over the seeds; with one seed, of the share of "
           "right answers.\nWhether two of them differ by more than noise does not follow from their intervals: "
           "`noise.compare` decides it.\nall-reduce: all gradients of a step, with no computation to hide behind.")
    if not frame["own"].all():
        yield ("Nodes on one machine share its cores: the accuracies are valid, the speeds are not those of separate\n"
               "machines. Only the links of `labs cluster` have a bandwidth.")
