"""Time ledger of an epoch: input + compute + communication + start + other = wall time.

Nothing is timed inside a step, where work overlaps and a clock would disturb it. The entries are differences between
whole steps that differ in one thing:

    compute        a step on a batch in memory that exchanges no gradients
    communication  the extra time when gradients are exchanged, including the wait for the slowest worker
    input          the extra time when the batches come from the input pipeline
    start          the extra time of an epoch that has only one step: Keras' `fit`, a new pipeline, its first batch
    other          the rest of the epoch: callbacks, a machine that has changed its speed, measurement error
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from labs.results import noise, tables
from labs.run import heartbeat
from labs.run.errors import LabError

if TYPE_CHECKING:
    import pandas as pd
    import tensorflow as tf

    from labs.datasets.pipeline import Augment
    from labs.datasets.splits import Subset
    from labs.results.records import Record
    from labs.training.workers import Job

ENTRIES = ("input", "compute", "communication", "start", "other")
COLUMNS = {f"ledger_{entry}_seconds": entry for entry in (*ENTRIES, "wall")}
"""The ledger's columns in the metrics of a record, with the entry that each holds."""
SECONDS, ROUNDS = 0.3, 5
"""Approximate seconds per kind of step and round, in which the kinds take turns."""


def measure(job: Job, model: tf.keras.Model, train: Subset, history: Sequence[dict[str, float]], *, batch_size: int,
            augment: Augment | None = None) -> tuple[dict[str, float], list[dict[str, float]]]:
    """Return the ledger of an epoch, in seconds, and its rounds: the seconds per step of each kind of step.

    The arguments are those of `fit`, and its history, whose median epoch is the wall time. It trains the model further.
    """
    from labs.datasets.pipeline import AHEAD, train_batches
    from labs.datasets.sharding import shard
    from labs.training import hvd_ops

    def batches(epoch: int, first_step: int = 0) -> tf.data.Dataset:
        mine = shard(train.positions, batch_size, job.rank, job.size, epoch, job.seed)
        return train_batches(train.images, train.labels, mine, augment, epoch=epoch, seed=job.seed,
                             first_step=first_step)

    later, done = history[1:] or history, len(history)
    wall, steps = float(np.median([row["train_seconds"] for row in later])), int(later[-1]["steps"])
    count = max(1, min(64, int(SECONDS / (wall / steps))))
    needed = 1 + (ROUNDS + 1) * (AHEAD + 1 + count)
    pipeline = functools.reduce(lambda one, other: one.concatenate(other),
                                map(batches, range(done, done + -(-needed // steps))))
    timers = _timers(model, pipeline) | {"one_step_epoch": _epoch_timer(model, batches, steps, done)}
    for timer in timers.values():
        timer(count)  # The first call traces the model.
    rows = []
    for number in range(ROUNDS):
        first = number % len(timers)
        times = {kind: timers[kind](count) for kind in [*timers][first:] + [*timers][:first]}
        rows.append({"round": number + 1} | hvd_ops.mean_over_workers(times, 1.0))
    entries = {name: float(np.median([each[name] for each in _by_round(rows, steps)])) for name in
               ("compute", "communication", "input", "start")}
    entries |= {"other": wall - sum(entries.values()), "wall": wall}
    return {f"ledger_{name}_seconds": value for name, value in entries.items()}, rows


def _timers(model: tf.keras.Model, pipeline: tf.data.Dataset) -> dict[str, Callable[[int], float]]:
    """Return, by kind of step, a function that takes a number of steps and returns the seconds per step."""
    from labs.datasets.pipeline import AHEAD
    from labs.training import hvd_ops
    from labs.training.keras_internals import take_steps
    from labs.training.loop import local_copy

    local, several = local_copy(model, "sparse_categorical_crossentropy", ("accuracy",)), iter(pipeline)
    one = iter(pipeline.from_tensors(next(several)).repeat())

    def seconds(trained: tf.keras.Model, batches: Iterator, count: int) -> float:
        hvd_ops.barrier()
        began = time.perf_counter()
        take_steps(trained, batches, count)
        return (time.perf_counter() - began) / count

    def from_pipeline(count: int) -> float:
        take_steps(model, several, AHEAD + 1)  # Its buffer has filled while the other kinds were timed.
        return seconds(model, several, count)

    return {"alone": functools.partial(seconds, local, one), "exchanged": functools.partial(seconds, model, one),
            "from_pipeline": from_pipeline}


def _epoch_timer(model: tf.keras.Model, batches: Callable[[int, int], tf.data.Dataset], steps: int,
                 epoch: int) -> Callable[[int], float]:
    """Return a function that trains the last step of an epoch as `fit` does, and returns the seconds of all of it."""
    from labs.training import hvd_ops
    from labs.training.loop import Steps

    numbers = itertools.count(epoch)

    def one_step_epoch(_: int) -> float:
        number = next(numbers)
        callback = Steps(number + 1, steps, steps - 1)
        hvd_ops.barrier()
        began = time.perf_counter()
        model.fit(batches(number, steps - 1), steps_per_epoch=1, callbacks=[callback], shuffle=False, verbose=0)
        seconds = time.perf_counter() - began
        heartbeat.current().pause()  # The other kinds of step have no heartbeat.
        return seconds

    return one_step_epoch


def read(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the ledger in a record's metrics by entry, "wall" included; empty if it was not measured."""
    return {COLUMNS[name]: value for name, value in metrics.items() if name in COLUMNS}


def _by_round(rounds: Sequence[Mapping[str, float]], steps: int) -> list[dict[str, float]]:
    """Return the seconds per epoch of each measured entry, all but `other`, in each round."""
    return [{"input": steps * (row["from_pipeline"] - row["exchanged"]),
             "compute": steps * row["alone"],
             "communication": steps * (row["exchanged"] - row["alone"]),
             "start": row["one_step_epoch"] - row["from_pipeline"]} for row in rounds]


def samples(runs: Sequence[Record]) -> pd.DataFrame:
    """Return seconds per epoch, a column per entry and `wall`, one row per run; of a single run one row per round.

    The index is the seed, by which runs are paired, or the round. Disturbed runs are left out where there are others;
    `attrs["disturbed"]` names them.
    """
    import pandas as pd

    disturbed = {run["run"]: cause for run in runs if (cause := noise.disturbance(run))}
    runs = [run for run in runs if not noise.disturbance(run)] or list(runs)
    ledgers = [read(run["metrics"]) for run in runs]
    if not all(ledgers):
        raise LabError("a run has no ledger; run the lab with --ledger")
    index: list[Hashable] = [run["config"].get("seed", run["run"]) for run in runs]
    if len(runs) == 1:
        (run,), wall = runs, ledgers[0]["wall"]
        rounds = _by_round(run["tables"]["ledger"], int(run["history"][-1]["steps"]))
        ledgers = [row | {"other": wall - sum(row.values()), "wall": wall} for row in rounds]
        index = [f"{run['run']}, round {number}" for number in range(len(rounds))]
    frame = pd.DataFrame(ledgers, index, columns=[*ENTRIES, "wall"]).fillna(0.0)
    frame.attrs["disturbed"] = [f"{name} ({cause})" for name, cause in disturbed.items()]
    return frame


def by_cell(runs: Iterable[Record]) -> dict[tuple[int, int], pd.DataFrame]:
    """Return the samples of runs that differ only in the batch size per worker and the number of workers, by these."""
    cells: dict[tuple[int, int], list[Record]] = {}
    for run in runs:
        cells.setdefault((run["config"]["batch_size"], run["layout"]["size"]), []).append(run)
    return {cell: samples(cells[cell]) for cell in sorted(cells)}


def table(seconds: pd.DataFrame) -> pd.DataFrame:
    """Return by entry the mean `seconds`, `plus_minus` (half of Student's 95 % interval) and `share` of the wall."""
    import pandas as pd

    means = seconds.mean()
    ends = pd.Series({name: noise.mean_interval(values)[1] for name, values in seconds.items()})
    return pd.DataFrame({"seconds": means, "plus_minus": ends - means, "share": means / means["wall"]})


def format_cells(cells: Mapping[Hashable, pd.DataFrame], digits: int = 2) -> pd.DataFrame:
    """Return the ledgers of several cells as text: a row per cell, "1.52 ± 0.04" by entry, and the share of `other`."""
    import pandas as pd

    rows = {}
    for cell, seconds in cells.items():
        ledger, several = table(seconds), len(seconds) >= tables.LEAST
        rows[cell] = {name: f"{row.seconds:.{digits}f}"
                            + f" ± {row.plus_minus:.{digits}f}" * bool(several and row.plus_minus > 1e-9)
                      for name, row in ledger.iterrows()}
        rows[cell]["share of other"] = f"{ledger['share']['other']:.1%}"
    return pd.DataFrame.from_dict(rows, orient="index")


def excess(one: pd.DataFrame, many: pd.DataFrame, workers: int) -> pd.DataFrame:
    """Return by how much each entry exceeds 1/N of one worker's: columns `excess`, `low`, `high`; largest first.

    The last row, "wall", is the sum: the wall time on N workers minus 1/N of that on one.
    """
    import pandas as pd

    ideal = _ideal(one, workers)
    rows = {name: noise.compare(many[name], ideal[name]) for name in many}
    frame = pd.DataFrame({name: (each.value, each.low, each.high) for name, each in rows.items()},
                         ["excess", "low", "high"]).T
    return pd.concat([frame.drop(index="wall").sort_values("excess", ascending=False), frame.loc[["wall"]]])


def _ideal(one: pd.DataFrame, workers: int) -> pd.DataFrame:
    """Return 1/N of the ledger of one worker, which exchanges nothing: its `communication` is an error, so `other`."""
    return one.assign(communication=0.0, other=one["other"] + one["communication"]) / workers


def bound(one: pd.DataFrame, many: pd.DataFrame, workers: int) -> str:
    """Return a sentence on what bounds the scaling: the entry whose excess exceeds all others by more than noise.

    An excess that is not larger than that of `other`, of either sign, is no explanation.
    """
    ideal = _ideal(one, workers)
    largest, *others = excess(one, many, workers).drop(index="wall").index
    compare = functools.partial(noise.compare, comparisons=len(others) + 3, unit="s per epoch", digits=3)
    whole, own = (compare(many[name], ideal[name]) for name in ("wall", largest))
    leads = {name: compare(many[largest] - many[name], ideal[largest] - ideal[name]) for name in others}
    leads["-other"] = compare(many[largest] + many["other"], ideal[largest] + ideal["other"])
    rivals = ", ".join(dict.fromkeys(name.removeprefix("-") for name, lead in leads.items() if lead.direction < 1))
    if whole.direction < 0:
        sentence = f"nothing bounds the scaling: the epoch is shorter than ideal, {whole.figures}: check the baseline"
    elif whole.value <= 0:
        sentence = f"not resolved: the epoch is not longer than ideal, {whole.figures}"
    elif largest == "other" or not own.resolved:
        sentence = f"not resolved: {largest} has the largest excess, {own.figures}"
    elif rivals:
        sentence = f"not resolved: {largest} has the largest excess, {own.figures}, but {rivals} may be as large"
    else:
        sentence = f"{largest} bounds the scaling: {own.figures}"
    disturbed = ", ".join([*one.attrs.get("disturbed", ()), *many.attrs.get("disturbed", ())])
    return sentence + f"; disturbed: {disturbed}" * bool(disturbed)


def above_zero(cells: Mapping[tuple[int, int], pd.DataFrame], entry: str, workers: int) -> str:
    """Return a sentence with the batch sizes for which an entry is above 0; their 95 % intervals hold together."""
    chosen = {batch: seconds[entry] for (batch, size), seconds in cells.items() if size == workers}
    found = [str(batch) for batch, values in chosen.items() if noise.mean_interval(values, len(chosen))[0] > 0]
    return f"`{entry}` is above 0 by more than noise for {'b = ' + ', '.join(found) if found else 'no b'}."


def trusted(cells: Mapping[tuple[int, int], pd.DataFrame]) -> bool:
    """Return whether `other` is below 5 % of the epoch in each ledger of `by_cell`."""
    return all(abs(table(seconds)["share"]["other"]) < 0.05 for seconds in cells.values())


def readable(cells: Mapping[tuple[int, int], pd.DataFrame]) -> str:
    """Return a sentence on whether the entries of the ledgers of `by_cell` can be trusted."""
    shares = {f"N = {size}, b = {batch}": float(table(each)["share"]["other"]) for (batch, size), each in cells.items()}
    if trusted(cells):
        return (f"`other` is at most {100 * max(map(abs, shares.values())):.1f} % of an epoch: the entries explain it, "
                "each to within its ±")
    large = [f"{100 * share:.0f} % ({cell})" for cell, share in shares.items() if abs(share) >= 0.05]
    return f"`other` is {', '.join(large)} of an epoch: do not trust the entries of these ledgers, measure again"
