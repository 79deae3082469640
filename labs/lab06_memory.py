"""Lab 6: how deep and how wide a network fits, what a second worker changes about it, and what really helps.

    labs run lab06_memory --depth 8 --width 16
    labs run lab06_memory --search width
    labs sweep lab06_memory
    sbatch jobs/lab06_memory.sh --preset paper
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from labs import FOR_MEMORY
from labs.report import memory_limits
from labs.run.options import Options
from labs.run.sweeps import Sweep, divide
from labs.run.worker import main


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
    from labs.models.denoising import denoising_error, identity, psnr
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

    from labs.models.denoising import denoiser, denoising_error

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

    from labs.models.denoising import psnr
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


summary, drawn = memory_limits.summary, memory_limits.figures


if __name__ == "__main__":
    main()
