"""Lab 8: throughput in images per second: age estimation with three networks, on one node and on many.

    labs run lab08_throughput --workers 2
    labs sweep lab08_throughput
    sbatch jobs/lab08_throughput.sh --preset paper --model resnet50
"""

import dataclasses
import shutil
from typing import Annotated, Any, Literal

from labs import Lab, LabError, Options, Sweep, datasets, divide, fields, main, measure, models, results, training
from labs.run import resources
from labs.run.errors import plural


@dataclasses.dataclass(frozen=True)
class Config:
    """What a student may change in lab 8."""

    data: str = "embedded"
    """"embedded" (500 synthetic faces), "real" (after `labs data fetch imdb_wiki`) or a folder with wiki.mat."""
    input: Literal["cached", "decoded", "synthetic"] = "cached"
    """Photos decoded once, photos decoded in each epoch as in report A, or random images from memory as a control."""
    model: Literal["small", "resnet50", "inception_v3", "vgg16", "vgg16_dense"] = "small"
    image_size: fields.ImageSize = 48
    batch_size: fields.BatchSize = 16
    epochs: fields.Epochs = 12
    steps_per_epoch: Annotated[int, fields.Range(0, 2**20)] = 0
    """Steps of an epoch, to keep a measurement short; 0: all training images."""
    base_lr: fields.LearningRate = 0.001
    """Learning rate of Adam for base_batch_size images per step."""
    base_batch_size: fields.BaseBatchSize = 16
    scaling: fields.Scaling = "sqrt"
    threads: fields.Threads = 0
    test_split: fields.Share = 0.2
    """Share of all faces held out for the test; 0: no test."""
    seed: fields.Seed = 1


PRESETS = {
    "demo": Config(),
    # Report A: a node has four processes with seven threads and a batch of 32 each.
    "paper": Config(data="real", model="resnet50", image_size=224, batch_size=32, base_batch_size=32, epochs=10),
}


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Train on faces and their ages, measure the utilization of the cores, and return the run's record."""
    import tensorflow as tf

    with training.start(config, options) as job:
        with training.bind_to_cores(job.layout):
            faces = _faces(config, job.size)
            job.print_once(faces.description)
            model = models.age_model(config.model, config.image_size)
            # Horovod: a step trains on the images of all workers. The learning rate follows that global batch, not the
            # number of workers: it stays the same where the workers divide one batch.
            k = config.batch_size * job.size / config.base_batch_size
            learning_rate = training.scaled_lr(config.base_lr, k, config.scaling)
            optimizer = tf.keras.optimizers.Adam(learning_rate)
            with measure.Utilization() as busy:
                history = training.fit(
                    job, model, optimizer, faces.train, loss="mse", metrics=("mae",),
                    batch_size=config.batch_size, epochs=config.epochs,
                )
            # Horovod: each worker has measured its own process; together they are the utilization of the nodes.
            each = training.hvd_ops.gather_object(busy.summary(skip=history[0]["train_seconds"]))
            utilization = measure.utilization.combine(each, job.layout.nodes)
            test = training.evaluate(job, model, faces.test, config.batch_size) if len(faces.test) else {}
            input_rate = measure.throughput.input_rate(faces.train, config.batch_size)
        if job.rank == 0:  # Up to a gigabyte, and a finished run is not resumed.
            shutil.rmtree(job.folder / "checkpoints", ignore_errors=True)
        metrics: dict[str, Any] = {f"test_{name}": value for name, value in test.items()} | utilization
        # No longer bound: the record has the cores of the node.
        return results.finish(
            job, history, **metrics,
            input_images_per_sec=job.size * training.hvd_ops.mean_over_workers({"input": input_rate}, 1.0)["input"],
            gradient_bytes=measure.gradient_bytes(model),
        )


def _faces(config: Config, size: int):
    """Return the faces' subsets; the training subset is cut to `steps_per_epoch` steps."""
    import numpy as np

    count = config.steps_per_epoch * config.batch_size * size
    if config.input == "synthetic":
        return datasets.from_noise(count or 1024, config.image_size, config.seed)
    faces = datasets.from_faces(
        datasets.locate("imdb_wiki", config.data), config.image_size, config.test_split, 0.0, config.seed,
        cached=config.input == "cached",
    )
    if not count:
        return faces
    some = np.random.default_rng(config.seed).permutation(faces.train.positions)[:count]
    return dataclasses.replace(faces, train=dataclasses.replace(faces.train, positions=np.sort(some)))


def _larger_for_inception(config: Config, workers: int) -> Config:
    """Enlarge the images for InceptionV3, which was designed for 299 pixels instead of 224 and needs at least 75."""
    sides = {32: 75, 224: 299}
    side = sides.get(config.image_size, config.image_size) if config.model == "inception_v3" else config.image_size
    return dataclasses.replace(config, image_size=side)


def _divided(config: Config, workers: int) -> Config:
    return divide(_larger_for_inception(config, workers), workers)


def _shared_cores(config: Config, workers: int) -> Config:
    """Divide the batch and the cores of one node, as threads, among the workers."""
    cores = resources.cores()
    if cores % workers:
        raise LabError(f"{workers} workers cannot share {plural(cores, 'core')} evenly")
    return dataclasses.replace(_divided(config, workers), threads=cores // workers)


def _four_on_each(workers: int) -> int:
    return max(1, workers // 4)


THREE = ("resnet50", "inception_v3", "vgg16")
ONE_REPEAT = (1,)  # So that the demo takes minutes; --repeats 3 gives the throughputs an interval.
SHORT = {"epochs": (3,), "test_split": (0.0,)}  # Two epochs are timed: the first is not.
# Each core stands for a node. A baseline of one worker with all cores could not be beaten by several workers.
CORES = {"epochs": (2,), "test_split": (0.0,), "image_size": (32,), "batch_size": (4,), "steps_per_epoch": (8,),
         "threads": (1,), "model": ("vgg16",)}
# Report A: a node is four processes with seven threads and a batch of 32 each.
NODES = SHORT | {"batch_size": (32,), "steps_per_epoch": (20,), "threads": (7,), "model": THREE}
WEAK = "A5: weak scaling, at a constant batch per worker"
STRONG = "A6: strong scaling, at a constant global batch"
LAYOUTS = "A4: processes x threads on the cores of one node, at a constant global batch"

SWEEPS = {
    "demo": (
        Sweep("weak", WEAK, CORES | {"model": THREE}, (1, 2), ONE_REPEAT, _larger_for_inception),
        Sweep("strong", STRONG, CORES | {"batch_size": (8,)}, (1, 2), ONE_REPEAT, divide),
        Sweep("layouts", LAYOUTS, CORES | {"model": THREE, "batch_size": (8,)}, (1, 2), ONE_REPEAT, _shared_cores),
        Sweep("batch", "A4: images per second by batch size", CORES | {"batch_size": (1, 4, 8)}, (1,), ONE_REPEAT),
        Sweep("input", "A7: the same steps with images from the cache, decoded in each epoch, and random",
              SHORT | {"input": ("cached", "decoded", "synthetic"), "steps_per_epoch": (20,), "threads": (1,)}, (1,),
              ONE_REPEAT),
        Sweep("full", "A4: each network at its full size on all cores",
              CORES | {"model": THREE, "image_size": (224,), "batch_size": (8,), "steps_per_epoch": (2,),
                       "threads": (0,)}, (1,), ONE_REPEAT, _larger_for_inception),
        Sweep("faces", "A3: how well each network estimates ages",
              {"model": THREE, "image_size": (32,), "batch_size": (32,), "base_batch_size": (32,),
               "base_lr": (0.0001,), "epochs": (8,)}, (1,), ONE_REPEAT, _larger_for_inception),
    ),
    "paper": (
        Sweep("weak", WEAK, NODES, (4, 8, 16, 32), adapt=_larger_for_inception, nodes=_four_on_each),
        Sweep("strong", STRONG, NODES | {"batch_size": (128,)}, (4, 8, 16, 32), adapt=_divided, nodes=_four_on_each),
        Sweep("layouts", LAYOUTS, NODES | {"batch_size": (128,)}, (1, 2, 4), adapt=_shared_cores),
    ),
}


LAB = Lab(Config, PRESETS, run, sweeps=SWEEPS, data_set="imdb_wiki")

if __name__ == "__main__":
    main()
