"""Lab 6: how deep and how wide a network fits, what a second worker changes, and what helps.

    labs run lab06_memory --depth 8 --width 16
    labs run lab06_memory --search width
    labs sweep lab06_memory
    sbatch jobs/lab06_memory.sh --preset paper
"""

import dataclasses
from typing import Annotated, Literal

from labs import Lab, Options, Sweep, datasets, divide, fields, main, measure, models, results, training
from labs.measure.memory import WITHOUT_COPIES


@dataclasses.dataclass(frozen=True)
class Config:
    """What a student may change in lab 6."""

    data: fields.Caltech256 = "embedded"
    depth: fields.Depth = 6
    """Convolutions of the denoiser, at least 3."""
    width: fields.Width = 16
    remedy: Literal["none", "pieces", "recompute", "bfloat16", "momentum"] = "none"
    """How to save memory: split each batch into four micro-batches (pieces), recompute the activations in the backward
    pass (recompute), keep them in half precision (bfloat16), or train with SGD and momentum, which keeps one number per
    parameter where Adam keeps two (momentum; it needs a larger base_lr)."""
    image_size: fields.ImageSize = 64
    images: fields.ImageCount = 192
    batch_size: fields.BatchSize = 64
    epochs: fields.Epochs = 3
    base_lr: fields.LearningRate = 0.003
    """Learning rate of Adam for 64 images per step of all workers together, before scaling."""
    scaling: fields.Scaling = "sqrt"
    noise_level: Annotated[float, fields.Range(0.001, 255)] = 25
    """Standard deviation of the noise to remove, where white is 255."""
    memory_limit_mb: Annotated[int, fields.Range(0, 2**30)] = 2048
    """MiB that one worker may use, of its GPU or else of resident memory; 0: no limit."""
    search: Literal["no", "batch_size", "width", "depth"] = "no"
    """Search for the largest value of this field that fits, without training (batch_size: of all workers together)."""
    test_split: fields.TestShare = 0.1
    threads: fields.Threads = 1
    seed: fields.Seed = 1


PRESETS = {
    "demo": Config(),
    # Report T names no sizes; DnCNN has 17 layers of 64 channels, and is trained on noise of level 25 among others.
    "paper": Config(data="real", depth=17, width=64, image_size=128, images=0, batch_size=64, epochs=10,
                    base_lr=0.001, memory_limit_mb=0, threads=0),
}

GRID = "T1, T2: PSNR, time and peak memory over depth x width, on one worker and on two, at a constant global batch"
HELP = "T1: what reduces memory, and what it costs"
LIMIT = "T1: the batch of all workers at which training no longer fits"
MICRO_BATCHES = 4
SMALL = {"image_size": (32,), "images": (128,), "epochs": (4,)}  # A small network learns something in seconds.
ONE_NETWORK = {"images": (256,), "epochs": (8,), "threads": (0,)}  # Activations take much of the memory.
SWEEPS = {
    "demo": (
        Sweep("grid", GRID, SMALL | {"batch_size": (16,), "base_lr": (0.006,),
                                     "depth": (4, 8, 16), "width": (4, 8, 16)}, adapt=divide),
        Sweep("remedies", HELP, ONE_NETWORK | {"remedy": ("none", "pieces", "recompute", "bfloat16")}, (1,)),
        Sweep("smaller", "T1: the same network with a smaller batch", ONE_NETWORK | {"batch_size": (16,)}, (1,)),
        Sweep("moments", "T1: the same network with an optimizer that keeps one number per parameter instead of two",
              ONE_NETWORK | {"remedy": ("momentum",), "base_lr": (0.3,)}, (1,)),
        Sweep("limit", LIMIT, {"search": ("batch_size",)}, seeds=(1,)),
    ),
    "paper": (
        Sweep("grid", GRID, {"depth": (5, 10, 20, 40), "width": (32, 64, 128, 256)}, (1, 2), (1,), divide),
        Sweep("limit", LIMIT, {"search": ("batch_size",)}, (1, 2, 4), (1,)),
    ),
}


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Train if a training step fits into memory; with `search`, find the largest network or batch that fits."""
    with training.start(config, options) as job:
        if config.search != "no":
            return _search(job)
        measure.memory.return_freed()
        trial = _try(job, config)
        if not trial.fits:
            job.print_once(f"does not fit: {trial.cause}")
            return results.finish(job, [], fits=False, peak_mb=trial.peak_mb, parameters=parameters(config))
        return _train(job)


def _train(job):
    """Train the denoiser, evaluate it, and return the record with the largest peak memory of any worker."""
    import numpy as np

    config = job.config
    root = datasets.locate("caltech256", config.data)
    photos = datasets.from_folder(root, config.image_size, config.test_split, 0.0, config.seed)
    job.print_once(photos.description)
    some = np.random.default_rng(config.seed).permutation(photos.train.positions)[:config.images or None]
    # The model returns its errors, so every label is 0.
    train, test = (dataclasses.replace(subset, labels=np.zeros(len(subset.labels), np.float32), positions=positions)
                   for subset, positions in ((photos.train, np.sort(some)), (photos.test, photos.test.positions)))
    # Horovod: the learning rate follows the global batch, the images of all workers in one step.
    learning_rate = training.scaled_lr(config.base_lr, config.batch_size * job.size / 64, config.scaling)
    model = network(config)
    history = training.fit(
        job, model, _optimizer(config, learning_rate), train, loss="mae", metrics=(models.psnr,),
        batch_size=config.batch_size, epochs=config.epochs, backward_passes_per_step=_micro_batches(config),
    )
    cleaned = training.evaluate(job, model, test, config.batch_size // _micro_batches(config))
    peak = max(training.hvd_ops.gather_object(measure.memory.peak_mb()))
    return results.finish(
        job, history, fits=not config.memory_limit_mb or peak <= config.memory_limit_mb, peak_mb=peak,
        test_psnr=cleaned["psnr"], parameters=model.count_params(),
    )


def network(config: Config):
    """Return the model to train: it adds noise to images, removes it, and returns their squared errors."""
    import tensorflow as tf

    # bfloat16 halves the activations; the weights stay float32. A GPU from before 2020 would need float16.
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16" if config.remedy == "bfloat16" else "float32")
    try:
        inner = models.denoiser(config.image_size, config.depth, config.width, recompute=config.remedy == "recompute")
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")
    return models.denoising_error(inner, config.noise_level, config.seed)


def parameters(config: Config) -> int:
    """Return the number of the denoiser's parameters, without building it."""
    width, ends = config.width, 2 * 9 * 3 * config.width + config.width + 3
    return ends + (config.depth - 2) * (9 * width * width + width)


def one_step(config: Config, threads: int) -> None:
    """Take one training step on random images, without the other workers: the trial of `_try`."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    count = max(1, config.batch_size // _micro_batches(config))
    model = network(config)
    training.compile_for(model, training.fused(_optimizer(config, config.base_lr)), "mae", (models.psnr,))
    images = tf.cast(tf.random.uniform([count, config.image_size, config.image_size, 3], 0, 256, tf.int32), tf.uint8)
    batch = images, tf.zeros(count), tf.ones(count)
    training.take_steps(model, iter(tf.data.Dataset.from_tensors(batch).repeat()), 1)


def check(config: Config, workers: int) -> None:
    """Refuse a batch that cannot be split into equal micro-batches."""
    datasets.refuse_unequal(config.batch_size, _micro_batches(config))


def _optimizer(config: Config, learning_rate: float):
    import tensorflow as tf

    if config.remedy == "momentum":
        return tf.keras.optimizers.SGD(learning_rate, momentum=0.9)
    return tf.keras.optimizers.Adam(learning_rate)


def _micro_batches(config: Config) -> int:
    return MICRO_BATCHES if config.remedy == "pieces" else 1


def _try(job, config: Config):
    """Try a training step in a subprocess of rank 0, and return the result on all workers."""
    # Horovod: the workers are alike, so one of them tries for all.
    return training.hvd_ops.call_on_rank_0(lambda: measure.memory.probe(
        one_step, config, job.layout.threads, limit_mb=config.memory_limit_mb))


def _search(job):
    """Find the largest batch, width or depth that fits, by bisection, and return the record with all trials."""
    name, rows = job.config.search, []

    def fits(value: int) -> bool:
        share = -(-value // job.size) if name == "batch_size" else value
        trial = _try(job, dataclasses.replace(job.config, **{name: share}))
        rows.append({name: value, **trial._asdict()})
        job.print_once(f"{name} {value}: {trial.peak_mb:.0f} MiB, {'fits' if trial.fits else 'does not fit'}")
        return trial.fits

    smallest = 3 if name == "depth" else 1
    largest = measure.memory.largest_that_fits(lambda more: fits(more + smallest - 1), first=getattr(job.config, name))
    largest += smallest - 1 if largest else 0
    return results.finish(job, [], tables={"trials": rows}, **{f"largest_{name}": largest})


LAB = Lab(Config, PRESETS, run, sweeps=SWEEPS, data_set="caltech256", check=check, environment=WITHOUT_COPIES)

if __name__ == "__main__":
    main()
