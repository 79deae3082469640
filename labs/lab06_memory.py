"""Lab 6: how deep and how wide a network fits, what a second worker changes about it, and what really helps.

    labs run lab06_memory --depth 8 --width 16
    labs run lab06_memory --search width
    labs sweep lab06_memory
    sbatch jobs/lab06_memory.sh --preset paper
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from labs import FOR_MEMORY
from labs.run.options import Options
from labs.run.sweeps import Sweep, divide
from labs.run.worker import main

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Config:
    """What a student may change in lab 6."""

    data: str = "embedded"
    """"embedded" (drawn pictures), "real" (after `labs data fetch caltech256`) or a folder with a folder per class."""
    depth: int = 6
    """Convolutions of the denoiser, at least 3."""
    width: int = 16
    """Channels between them."""
    remedy: Literal["none", "pieces", "recompute", "bfloat16"] = "none"
    """Against a full memory: cut each batch into four (backward_passes_per_step), compute activations again in the
    backward pass, or hold them in half precision."""
    image_size: int = 64
    """Side of the pictures in pixels."""
    images: int = 192
    """Training images to use, to keep a demo short; 0: all."""
    batch_size: int = 64
    """Images per worker and step."""
    epochs: int = 3
    """Passes over the training images; the first is not timed."""
    base_lr: float = 0.003
    """Learning rate of Adam at 64 images per step of all workers together, before scaling."""
    scaling: Literal["linear", "sqrt", "none"] = "sqrt"
    """How the learning rate grows with the global batch."""
    noise_level: float = 25
    """Standard deviation of the noise that is to be taken away, where white is 255."""
    memory_limit_mb: int = 2048
    """MiB that one worker may use: of its GPU, or else of resident memory; 0: all there is."""
    search: Literal["no", "batch_size", "width", "depth"] = "no"
    """Train nothing, and look for the largest value of this (batch_size: of all workers together) that fits."""
    test_split: float = 0.1
    """Share of all images held out for the test, per class."""
    threads: int = 1
    """TensorFlow's threads of one worker; 0: its share of the cores. With 1, a core is to a worker what a GPU is."""
    seed: int = 1
    """Of the split, the weights, the noise and the order."""


PRESETS = {
    "demo": Config(),
    # Report T names no sizes; DnCNN has 17 layers of 64 channels, and is trained on noise of level 25 among others.
    "paper": Config(data="real", depth=17, width=64, image_size=128, images=0, batch_size=64, epochs=10,
                    base_lr=0.001, memory_limit_mb=0, threads=0),
}

VARIABLES = FOR_MEMORY

GRID = "T1, T2: PSNR, time and peak memory over depth x width, on one worker and on two, the global batch held"
HELP = "T1: what helps against a full memory, and what it costs"
LIMIT = "T1: the batch of all workers at which training no longer fits"
WIDEST = "T1: the width at which training no longer fits, the global batch held"
ALONE = "T1: the same network with a smaller batch"
PIECES = 4
DEEP = {"depth": (16,), "width": (16,), "image_size": (32,), "epochs": (2,)}
SWEEPS = {
    "demo": (
        Sweep("grid", GRID, {"depth": (4, 12, 32), "width": (8, 32), "epochs": (2,)}, seeds=(1,), adapt=divide),
        Sweep("limit", LIMIT, {"search": ("batch_size",)}, seeds=(1,)),
        Sweep("remedies", HELP, {"remedy": ("none", "pieces", "recompute", "bfloat16"), **DEEP}, (1,), seeds=(1,)),
        Sweep("smaller", ALONE, {"batch_size": (16,), **DEEP}, (1,), seeds=(1,)),
    ),
    "paper": (
        Sweep("grid", GRID, {"depth": (5, 10, 20, 40), "width": (32, 64, 128, 256)}, (1, 2), (1,), divide),
        Sweep("limit", LIMIT, {"search": ("batch_size",)}, (1, 2, 4), (1,)),
        Sweep("widest", WIDEST, {"search": ("width",)}, (1, 2, 4), (1,), divide),
        Sweep("remedies", HELP, {"remedy": ("none", "pieces", "recompute", "bfloat16")}, (1,)),
        Sweep("smaller", ALONE, {"batch_size": (16,)}, (1,)),
    ),
}


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Try whether a training step fits; if so train, or else say so; with `search`, look for what fits."""
    from labs.measure import memory
    from labs.report import run_record
    from labs.training import workers

    with workers.start("lab06_memory", config, options) as job:
        if config.search != "no":
            return _search(job)
        memory.return_freed()
        tried = _try(job, config)
        if not tried.fits:
            job.say(f"does not fit: {tried.cause}")
            return run_record.finish(job, [], fits=False, peak_mb=tried.peak_mb, parameters=parameters(config))
        return _train(job)


def _train(job):
    """Train the denoiser, judge it on the test images, and return the record with the peak of the fullest worker."""
    import numpy as np
    import tensorflow as tf

    from labs.datasets import fetch, splits
    from labs.measure import memory
    from labs.models.denoiser import denoising_error, identity, psnr
    from labs.report import run_record
    from labs.training import hvd_ops, schedule
    from labs.training.loop import compile_for, evaluate, fit

    config = job.config
    photos = splits.from_folder(fetch.locate("caltech256", config.data), config.image_size, config.test_split, 0.0,
                               config.seed)
    job.say(photos.description)
    some = np.random.default_rng(config.seed).permutation(photos.train.positions)[:config.images or None]
    train, test = (dataclasses.replace(part, labels=np.zeros(len(part.labels), np.float32), positions=positions)
                   for part, positions in ((photos.train, np.sort(some)), (photos.test, photos.test.positions)))
    # Horovod: the rate follows the images of one step of all workers together.
    rate = schedule.scaled_lr(config.base_lr, config.batch_size * job.size / 64, config.scaling)
    model = network(config)
    history = fit(job, model, tf.keras.optimizers.Adam(rate), train, loss="mae", metrics=(psnr,),
                  batch_size=config.batch_size, epochs=config.epochs, backward_passes_per_step=_pieces(config))
    found = evaluate(job, model, test, config.batch_size // _pieces(config))
    peak = max(hvd_ops.gather_object(memory.peak_mb()))
    # Without the PSNR of the noisy pictures nobody can tell whether the network has learnt anything.
    nothing = denoising_error(identity(config.image_size), config.noise_level, config.seed)
    compile_for(nothing, tf.keras.optimizers.SGD(), "mae", (psnr,))
    noisy = evaluate(job, nothing, test, config.batch_size)
    return run_record.finish(job, history, fits=not config.memory_limit_mb or peak <= config.memory_limit_mb,
                          peak_mb=peak, noisy_psnr=noisy["psnr"], test_psnr=found["psnr"],
                          parameters=model.count_params())


def network(config: Config):
    """Return the model that is trained: it makes pictures noisy, cleans them, and returns their squared errors."""
    import tensorflow as tf

    from labs.models.denoiser import denoiser, denoising_error

    # Weights stay float32; what bfloat16 halves are the activations. A GPU older than 2020 would need float16.
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16" if config.remedy == "bfloat16" else "float32")
    try:
        inner = denoiser(config.image_size, config.depth, config.width, recompute=config.remedy == "recompute")
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")
    return denoising_error(inner, config.noise_level, config.seed)


def parameters(config: Config) -> int:
    """Return the parameters of the denoiser, without building it."""
    width, ends = config.width, 2 * 9 * 3 * config.width + config.width + 3
    return ends + (config.depth - 2) * (9 * width * width + width)


def one_step(config: Config, threads: int) -> None:
    """Take one training step on random pictures, as this worker alone: what a trial tries."""
    import tensorflow as tf

    from labs.models.denoiser import psnr
    from labs.training.loop import compile_for, take_steps
    from labs.training.optimizers import in_one_pass

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    count = max(1, config.batch_size // _pieces(config))
    model = network(config)
    compile_for(model, in_one_pass(tf.keras.optimizers.Adam(config.base_lr)), "mae", (psnr,))
    pictures = tf.cast(tf.random.uniform([count, config.image_size, config.image_size, 3], 0, 256, tf.int32), tf.uint8)
    batch = pictures, tf.zeros(count), tf.ones(count)
    take_steps(model, iter(tf.data.Dataset.from_tensors(batch).repeat()), 1)


def _pieces(config: Config) -> int:
    return PIECES if config.remedy == "pieces" else 1


def _try(job, config: Config):
    """Try a training step in a process of rank 0's, and return on all workers what came of it."""
    from labs.measure import memory
    from labs.run.errors import LabError
    from labs.training import hvd_ops

    found, problem = None, ""
    if job.rank == 0:
        try:
            found = memory.probe(one_step, config, job.layout.threads, limit_mb=config.memory_limit_mb)
        except LabError as error:
            problem = str(error)
    # Horovod: the workers are alike; one tries for all.
    found, problem = hvd_ops.broadcast_object((found, problem))
    if problem:
        raise LabError(problem)
    return found


def _search(job):
    """Look for the largest batch, width or depth that fits, by bisection, and return the record with all trials."""
    from labs.measure import memory
    from labs.report import run_record

    name, rows = job.config.search, []

    def fits(value: int) -> bool:
        share = -(-value // job.size) if name == "batch_size" else value
        found = _try(job, dataclasses.replace(job.config, **{name: share}))
        rows.append({name: value, **dataclasses.asdict(found)})
        job.say(f"{name} {value}: {found.peak_mb:.0f} MiB, {'fits' if found.fits else 'does not fit'}")
        return found.fits

    smallest = 3 if name == "depth" else 1
    most = memory.largest_that_fits(lambda more: fits(more + smallest - 1), first=getattr(job.config, name))
    most += smallest - 1 if most else 0
    return run_record.finish(job, [], tables={"trials": rows}, **{f"largest_{name}": most})


def summary(runs: Sequence[dict[str, Any]]) -> str:
    """Return what the runs of the sweeps say: heatmaps in figures, what helps, and where the end is."""
    from labs.results import records

    frame = records.table(runs)
    parts = [text for tell in (_told_grid, _told_remedies, _told_limits) for text in tell(frame)]
    return "\n\n".join(parts)


VALUES = {"peak_mb": "peak memory of a worker (MiB)", "seconds_per_epoch": "seconds per epoch",
          "test_psnr": "PSNR (dB)"}


def heatmaps(frame: pd.DataFrame) -> Iterator[tuple[str, int, pd.DataFrame, pd.DataFrame]]:
    """Yield title, workers, values and whether they fit, each of depth x width, of the runs of the grid."""
    if "search" not in frame:
        return
    frame = frame[(frame["search"] == "no") & (frame["remedy"] == "none")]
    alike = frame.groupby(["data", "image_size", "noise_level", "global_batch_size"])
    if not len(frame):
        return
    frame = max((rows for _, rows in alike), key=lambda rows: rows["depth"].nunique() * rows["width"].nunique())
    if frame["depth"].nunique() < 2 or frame["width"].nunique() < 2:
        return
    for value, title in VALUES.items():
        if value == "test_psnr" and "noisy_psnr" in frame:
            title += f"; the noisy pictures have {frame['noisy_psnr'].median():.2f}"
        for size, rows in frame.groupby("size"):
            table = rows.pivot_table(index="depth", columns="width", values=value, aggfunc="median", dropna=False)
            fits = rows.pivot_table(index="depth", columns="width", values="fits", aggfunc="min").reindex_like(table)
            yield title, size, table, fits


def _told_grid(frame: pd.DataFrame) -> Iterator[str]:
    for title, size, table, fits in heatmaps(frame):
        shown = table.round(1).astype(object).mask(fits == 0, "no fit").mask(fits.isna(), "no run")
        yield f"{title}, {size} worker{'s' * (size > 1)}, depth x width:\n{shown.to_string()}"


def drawn(runs: Sequence[dict[str, Any]]) -> Iterator[tuple[str, Figure]]:
    """Yield the heatmaps of the grid, each with its title, one figure for each value."""
    import itertools

    from labs.report import plots
    from labs.results import records

    for title, group in itertools.groupby(heatmaps(records.table(runs)), key=lambda part: part[0]):
        yield title, plots.heatmaps(title, {f"{size} worker{'s' * (size > 1)}": (table, fits)
                                            for _, size, table, fits in group})


def _told_remedies(frame: pd.DataFrame) -> Iterator[str]:
    """Tell peak, time and PSNR of each remedy beside those of none, and of the smaller batch."""
    runs = frame[(frame["size"] == 1) & (frame["search"] == "no")]
    helped = runs[runs["remedy"] != "none"]
    if not len(helped):
        return
    alike = helped[["depth", "width", "image_size", "noise_level"]].iloc[0]
    runs = runs[(runs[alike.index] == alike).all(axis=1)].sort_values(["batch_size", "peak_mb"], ascending=False)
    columns = {"remedy": "remedy", "batch_size": "batch", "peak_mb": "peak MiB", "seconds_per_epoch": "s/epoch",
               "test_psnr": "PSNR dB", "fits": "fits"}
    table = runs[list(columns)].rename(columns=columns).round(2)
    yield f"what helps at depth {alike['depth']}, width {alike['width']}:\n{table.to_string(index=False)}"


def _told_limits(frame: pd.DataFrame) -> Iterator[str]:
    for name in ("batch_size", "width", "depth"):
        if f"largest_{name}" in frame:
            rows = frame.dropna(subset=[f"largest_{name}"]).sort_values("size")
            each = [f"{int(row[f'largest_{name}'])} on {row['size']} worker{'s' * (row['size'] > 1)}"
                    for _, row in rows.iterrows()]
            yield f"largest {name} that fits {int(rows['memory_limit_mb'].iloc[0])} MiB per worker: {', '.join(each)}"


if __name__ == "__main__":
    main()
