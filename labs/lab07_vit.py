"""Lab 7: a small vision transformer: which transport, how many bytes, and when one worker is the right answer.

    labs run lab07_vit --workers 2
    labs run lab07_vit --workers 2 --backend gloo
    labs sweep lab07_vit
    sbatch jobs/lab07_vit.sh --preset paper
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from labs.run import naming
from labs.run.options import Options
from labs.run.sweeps import Sweep, divide
from labs.run.worker import main

if TYPE_CHECKING:
    import pandas as pd


@dataclasses.dataclass(frozen=True)
class Config:
    """What a student may change in lab 7."""

    data: str = "embedded"
    """"embedded" (drawn pictures), "real" (after `labs data fetch cifar10`) or a folder with CIFAR-10's .bin files."""
    images: int = 0
    """Training images to use, to measure for a short time; 0: all."""
    width: int = 64
    """Numbers per token: with the depth, the size of the model."""
    depth: int = 2
    """Blocks of attention and a hidden layer."""
    heads: int = 4
    """Of each attention; they divide the width."""
    patch_size: int = 8
    """Side of a patch in pixels; each patch is a token, and a picture has 32 x 32 pixels."""
    batch_size: int = 32
    """Images per worker and step."""
    epochs: int = 6
    """Passes over the training images; the first is not timed."""
    base_lr: float = 0.001
    """Learning rate of Adam at 32 images per step of all workers together, before scaling."""
    scaling: Literal["linear", "sqrt", "none"] = "sqrt"
    """How the learning rate grows with the global batch."""
    warmup_epochs: int = 1
    """Epochs in which the learning rate climbs from nearly nothing: a transformer's first steps are its riskiest."""
    backend: Literal["mpi", "gloo"] = "mpi"
    """What carries tensors between the workers (those of a GPU go over NCCL, where Horovod was built with it)."""
    threads: int = 1
    """TensorFlow's threads of one worker; 0: its share of the cores. With 1, a core is to a worker what a GPU is."""
    traffic: bool = True
    """Count the bytes that cross, after the training: with this batch size, twice and four times as many images."""
    seed: int = 1
    """Of the weights and the order."""


PRESETS = {
    "demo": Config(),
    # DeiT-Ti, on CIFAR-10 with patches of 4 pixels: 64 tokens.
    "paper": Config(data="real", width=192, depth=12, heads=3, patch_size=4, batch_size=128, epochs=20, threads=0,
                    warmup_epochs=3),
}

BACKENDS = "T3, T4, T5: accuracy, time and bytes on one worker and on two, over MPI and over Gloo"
CROSSOVER = "T3: from which size of the model on are two workers faster, the global batch held?"
SHORT = {"traffic": (False,), "epochs": (4,)}  # Three epochs are timed, after the first.
SWEEPS = {
    "demo": (
        Sweep("backends", BACKENDS, {"backend": ("mpi", "gloo")}, seeds=(1,), adapt=divide),
        Sweep("crossover", CROSSOVER, SHORT | {"images": (768,), "depth": (1,), "patch_size": (8,),
                                               "width": (16, 64, 256)}, adapt=divide),
    ),
    "paper": (
        Sweep("backends", BACKENDS, {"backend": ("mpi", "gloo")}, adapt=divide),
        Sweep("crossover", CROSSOVER, SHORT | {"width": (48, 96, 192, 384, 768)}, workers=(1, 2, 4), adapt=divide),
    ),
}


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Train on this worker's share, count what crosses, and return the run's record."""
    from labs.datasets import arrays, fetch, splits
    from labs.measure import wire
    from labs.models.vit import vit
    from labs.report import run_record
    from labs.results import tables
    from labs.training import workers
    from labs.training.loop import evaluate, fit

    with workers.start("lab07_vit", config, options) as job:
        pictures = splits.from_arrays(arrays.read_cifar10(fetch.locate("cifar10", config.data)), 0.0, config.seed)
        train = dataclasses.replace(pictures.train, positions=pictures.train.positions[:config.images or None])
        model = vit(32, len(pictures.class_names), config.width, config.depth, config.heads, config.patch_size)
        job.say(f"{pictures.description}; {model.count_params():,} parameters")
        history = fit(job, model, _optimizer(config, job.size, len(train)), train,
                      batch_size=config.batch_size, epochs=config.epochs)
        test = evaluate(job, model, pictures.test, config.batch_size)
        counted = config.traffic and job.size > 1  # One worker has nobody to send to.
        rows = wire.measure(job, model, train, [config.batch_size * n for n in (1, 2, 4)]) if counted else []
        record = run_record.finish(
            job, history, tables={"wire": rows}, test_accuracy=test["accuracy"], test_loss=test["loss"],
            parameters=model.count_params(), gradient_bytes=wire.gradient_bytes(model),
            **{name: float(rows[0][name]) for name in ("predicted_bytes_per_step", "measured_bytes_per_step") if rows},
        )
        if job.rank == 0 and job.size > 1:
            print(tables.against_one_worker(record, naming.results_root(options), free=("backend", "traffic")))
        return record


def _optimizer(config: Config, size: int, images: int):
    """Return Adam with a rate that climbs, to where the global batch wants it."""
    import tensorflow as tf

    from labs.datasets.sharding import steps_per_epoch
    from labs.training import schedule

    # Horovod: the rate follows the images of one step of all workers together.
    rate = schedule.scaled_lr(config.base_lr, config.batch_size * size / 32, config.scaling)
    steps = steps_per_epoch(images, config.batch_size, size)
    return tf.keras.optimizers.Adam(schedule.Warmup(rate / 100, rate, config.warmup_epochs * steps))


# When one worker is the right answer.

SHAPE = ("width", "depth", "heads", "patch_size", "parameters")
"""What may differ between the models of one crossover."""


def compare(records: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Return a row per model, transport and number of workers: time, accuracy, speedup at the same global batch.

    The column `verdict` is "faster", "slower" (than one worker) or "not certain": the 95 % interval of the speedup
    contains 1. Without an interval, for want of repeats, it goes by the speedup alone. One worker has none.

    Args:
        records: Of runs of this lab.
    """
    import pandas as pd

    from labs.results import records as store
    from labs.results import scaling

    frame = store.table(records)
    unlike = ("batch_size", "traffic")  # Divided among the workers, and counted after the training.
    by = [*(name for name in scaling.configuration(frame) if name not in unlike), "parameters", "global_batch_size"]
    several, alone = frame[frame["size"] > 1], frame[frame["size"] == 1]
    asked = several["asked_backend"].unique() if len(several) else ["none"]
    # One worker uses no transport: its runs are the base of each.
    frame = pd.concat([several, *(alone.assign(asked_backend=backend) for backend in asked)])
    table = scaling.speedups(frame, by=by)
    same = frame.groupby([*by, "size", "nodes"], as_index=False, dropna=False)
    table["verdict"] = [_verdict(row) if row["size"] > 1 else "" for row in table.to_dict("records")]
    table = table.merge(same.agg({"test_accuracy": "mean", "backend": "first"}))
    table = table.drop_duplicates([name for name in table if name != "asked_backend"])
    return table.sort_values(["parameters", "size", "backend"], ignore_index=True)


def _verdict(row: dict[str, float]) -> str:
    low, high = (row[end] if row[end] == row[end] else row["speedup"] for end in ("speedup_low", "speedup_high"))
    return "faster" if low > 1 else "slower" if high < 1 else "not certain"


def by_transport(rows: pd.DataFrame) -> str:
    """Return the speedup over each transport in words: a faster one does not speak for the others.

    Args:
        rows: Of `compare`, of one model and one number of workers.
    """
    from labs.results.tables import cell

    return "; ".join(f"over {row['backend']}: speedup {cell(row, 'speedup')}, {row['verdict']} "
                     f"({row['repeats']} run{'s' * (row['repeats'] > 1)})" for row in rows.to_dict("records"))


def crossover(rows: pd.DataFrame) -> int | None:
    """Return the smallest size from which on all models are trained faster by the several workers; None for none.

    Args:
        rows: Of `compare`, of one number of workers and one transport.
    """
    start = None
    for size, verdict in rows[["parameters", "verdict"]].sort_values("parameters", ascending=False).values:
        if verdict != "faster":
            break
        start = int(size)
    return start


def summary(records: Sequence[dict[str, Any]]) -> str:
    """Return what some runs say, as text: a table, and the crossover wherever the size of the model was varied."""
    from labs.results import tables

    if not any(record["timings"]["images_per_sec"] for record in records):
        return ""
    table = compare(records)
    columns = ["parameters", "size", "backend", "global_batch_size", "repeats", "seconds_per_epoch", "test_accuracy",
               "speedup", "verdict"]
    grid = tables.grid("", table, columns)
    several = table[table["size"] > 1].dropna(subset=["speedup"])
    settings = [name for name in table.columns[:table.columns.get_loc("repeats")] if name not in SHAPE]
    lines = [named(rows) for _, rows in several.groupby(settings, dropna=False) if rows["parameters"].nunique() > 1]
    return "\n".join([tables.text([grid.head, *grid.rows]), *lines])


def named(rows: pd.DataFrame) -> str:
    """Return the crossover of some rows of `compare` in words, and what is certain below it.

    Args:
        rows: As of `crossover`.
    """
    start, first = crossover(rows), rows.iloc[0]
    who = f"{first['size']} workers over {first['backend']} (global batch {first['global_batch_size']})"
    below = rows if start is None else rows[rows["parameters"] < start]
    unclear = ", ".join(f"{size:,}" for size in below["parameters"][below["verdict"] != "slower"])
    if start is not None:
        text = f"crossover: from {start:,} parameters on, {who} are faster than one"
    else:
        text = f"no crossover: on the largest model tried, of {rows['parameters'].max():,} parameters, {who} are not " \
               "certain to be faster than one"
    if below.empty:
        return f"{text}; no smaller model was tried"
    if unclear:
        return f"{text}; not certain: {unclear} parameters (more --repeats narrow the intervals)"
    return f"{text}; {'below, ' if start is not None else 'for all sizes tried '}one worker is the right answer"


if __name__ == "__main__":
    main()
