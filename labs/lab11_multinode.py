"""Lab 11: the same training on several nodes: layouts, accuracy, weak and strong scaling.

    labs run lab11_multinode --workers 2
    labs sweep lab11_multinode
    sbatch -N 2 --ntasks-per-node=4 --gpus-per-node=4 jobs/lab11_multinode.sh --preset paper
    labs sweep lab11_multinode --preset paper --sbatch
    labs cluster sweep lab11_multinode --preset cluster
    labs sweep lab11_multinode --preset laptop
"""

import dataclasses
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from labs import Lab, Options, Sweep, datasets, divide, fields, main, measure, models, results, training

Milliseconds = Annotated[float, fields.Range(0, 1e6)]


@dataclasses.dataclass(frozen=True)
class Config:
    """What a student may change in lab 11. Nodes and workers are options of the launch, not of the experiment."""

    study: Literal["training", "sleep"] = "training"
    """"training" trains. On `labs cluster`, "sleep" times steps whose computation is a sleep, so that nodes that share
    cores do not slow each other down."""
    bandwidths: str = "100mbit,500mbit,1gbit,2gbit"
    """Study "sleep": the links to measure, separated by commas."""
    backend: fields.Backend = "auto"
    fixed_ms: Milliseconds = 6.9
    """Study "sleep": the part of a step that does not depend on the batch. Default: fitted to steps of 4 to 32 images
    on one core of a virtual Intel Xeon."""
    image_ms: Milliseconds = 0.58
    """Study "sleep": the computation of one image, in milliseconds."""
    data: fields.Mnist = "embedded"
    images: fields.ImageCount = 720
    validation_split: fields.Share = 0.0
    """Share of the training images held out to choose the best epoch; the test accuracy is then also that epoch's."""
    batch_size: fields.BatchSize = 32
    base_batch_size: fields.BaseBatchSize = 32
    epochs: fields.Epochs = 3
    base_lr: fields.LearningRate = 0.001
    """Learning rate of Adam for base_batch_size images per step."""
    scaling: fields.Scaling = "linear"
    warmup_epochs: fields.WarmupEpochs = 0
    threads: fields.Threads = 1
    seed: fields.Seed = 1


# Report M: 128 images per worker; linear scaling then gives its 0.001 * hvd.size().
PRESETS = {
    "demo": Config(),
    "paper": Config(data="real", images=0, batch_size=128, base_batch_size=128, epochs=40, threads=0),
    "cluster": Config(),
    # One process takes the steps of many workers: its batch is the sum of theirs. 5,000 of 60,000 images are held out.
    # One thread, because two runs side by side use two cores better than one run with two threads.
    "laptop": Config(data="real", images=0, validation_split=1 / 12, batch_size=128, base_batch_size=128, epochs=40),
}
ACCURACY = "M6: test accuracy on two nodes, by number of workers; M5: the learning rate for their global batch"
WEAK = "A5: weak scaling, at a constant batch per worker; one worker on each node"
STRONG = "A6: strong scaling, at a constant global batch and learning rate; one worker on each node"
LINKS = ("100mbit", "1gbit", "10gbit")
SHORT = {"epochs": (3,)}  # Two epochs are timed: the first is not.
SWEEPS = {
    # Each core stands for a node.
    "demo": (
        Sweep("accuracy", ACCURACY, {"scaling": ("linear", "sqrt", "none")}, (2,)),
        Sweep("weak", WEAK),
        Sweep("strong", STRONG, adapt=divide),
    ),
    "paper": (
        Sweep("accuracy", ACCURACY, {"scaling": ("linear", "sqrt")}, (2, 6, 8), nodes=lambda workers: 2),
        Sweep("weak", WEAK, SHORT, (1, 2, 4, 8), nodes=Sweep.node_per_worker),
        Sweep("strong", STRONG, SHORT, (1, 2, 4, 8), adapt=divide, nodes=Sweep.node_per_worker),
    ),
    "laptop": (
        Sweep("large", "M6: best validation accuracy, and the test accuracy of that epoch, of one process with the "
                       "global batch of 1, 2, 6 and 8 workers", {"batch_size": (128, 256, 768, 1024)}, (1,)),
    ),
    "cluster": (
        # Gloo's all-reduce is a ring, and so as fast as the page predicts.
        Sweep("sleep", "A5, A6: steps of 1 to 8 nodes over links; a sleep in place of the computation",
              {"study": ("sleep",), "backend": ("gloo",), "bandwidths": (",".join(LINKS),)},
              (1, 2, 4, 8), nodes=Sweep.node_per_worker),
        Sweep("weak", WEAK, SHORT, (1, 2, 4, 8), (1, 2), nodes=Sweep.node_per_worker, links=LINKS),
        Sweep("strong", STRONG, SHORT, (1, 2, 4, 8), (1, 2), adapt=divide, nodes=Sweep.node_per_worker, links=LINKS),
    ),
}


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Print the layout, train on this worker's shard, time the all-reduce, and return the run's record."""
    import tensorflow as tf

    with training.start(config, options) as job:
        if config.study == "sleep":
            return _sleep(job)
        arrays = datasets.read_mnist(datasets.locate("mnist", config.data))
        digits = datasets.from_arrays(arrays, config.validation_split, config.seed)
        train = dataclasses.replace(digits.train, positions=digits.train.positions[:config.images or None])
        machines, planned = _machines(), plan(config, len(train), job.size)
        job.print_once("\n".join(describe(config, job.layout.hosts, machines, planned)))

        model = models.mnist_cnn()
        warmup_steps = int(config.warmup_epochs * planned["steps_per_epoch"])
        schedule = training.Warmup(config.base_lr, planned["scaled_lr"], warmup_steps)
        best: dict[str, float] = {}

        def test_best(row: dict[str, float]) -> None:
            """Test each epoch that is the best so far on the validation images."""
            if row.get("val_accuracy", -1.0) > best.get("best_val_accuracy", -1.0):
                test = training.evaluate(job, model, digits.test, config.batch_size)
                best.update(best_epoch=row["epoch"], best_val_accuracy=row["val_accuracy"],
                            test_accuracy_at_best=test["accuracy"])

        history = training.fit(
            job, model, tf.keras.optimizers.Adam(schedule), train,
            digits.validation if config.validation_split else None,
            batch_size=config.batch_size, epochs=config.epochs, stop_when=test_best,
        )
        if best and max(row["val_accuracy"] for row in history) > best["best_val_accuracy"]:
            best = {}  # Before an interruption an epoch was better, and its weights are gone.
        final = training.evaluate(job, model, digits.test, config.batch_size)
        return results.finish(
            job, history, tables=training.keep_model(job, model, digits, config.batch_size),
            test_accuracy=final["accuracy"], test_loss=final["loss"], test_images=len(digits.test),
            machines=machines, scaled_lr=planned["scaled_lr"], **best,
            **_allreduce(job, measure.gradient_bytes(model)),
        )


def plan(config: Config, images: int, size: int) -> dict[str, float]:
    """Return what depends on `size`, the number of workers on all nodes: batch, k, learning rate, steps per epoch."""
    # Horovod: a step trains on the images of all workers on all nodes; their number grows with `size`.
    k = config.batch_size * size / config.base_batch_size
    return {"global_batch_size": config.batch_size * size, "k": k,
            "scaled_lr": training.scaled_lr(config.base_lr, k, config.scaling),
            "steps_per_epoch": datasets.steps_per_epoch(images, config.batch_size, size)}


def describe(config: Config, hosts: Sequence[str], machines: int, planned: dict[str, float]) -> Iterator[str]:
    """Yield the lines printed before the training: the layout, what depends on it (`plan`), and warnings.

    `hosts` has the node of every rank; `machines` is the number of machines that these nodes are on.
    """
    counts = Counter(hosts)
    where = "; " + ", ".join(f"{count} on {node}" for node, count in counts.items()) if len(counts) > 1 else ""
    yield f"layout: {results.tables.format_layout(hosts, machines)} (nodes x workers on each){where}"
    yield (f"global batch: {len(hosts)} x {config.batch_size} = {planned['global_batch_size']} images, "
           f"{planned['steps_per_epoch']} steps per epoch")
    warmup = f", after {config.warmup_epochs:g} epochs of warmup" if config.warmup_epochs else ""
    yield (f"learning rate: {config.base_lr:g} -> {planned['scaled_lr']:.4g}: scaling {config.scaling}, "
           f"k = {planned['global_batch_size']} / {config.base_batch_size} = {planned['k']:g}{warmup}")
    granted = int(os.environ.get("SLURM_JOB_NUM_NODES", 0))  # SLURM_NTASKS is mpirun's here.
    if granted > len(counts):
        yield (f"warning: Slurm granted {granted} nodes, but the workers are on {len(counts)}: mpirun fills one node "
               "before the next; set --workers to nodes x tasks")


def _machines() -> int:
    """Return the number of machines on which the workers run: all nodes of a test cluster may be on one machine."""
    # Horovod: each worker reads its machine's boot id, which workers on one machine share.
    return len(set(training.hvd_ops.gather_object(Path("/proc/sys/kernel/random/boot_id").read_text())))


def _sleep(job):
    """Time steps of weak and of strong scaling over each link: a sleep, then the all-reduce of the real gradients.

    All nodes of `labs cluster` share this machine's cores, so the computation of many nodes takes longer than that of
    one. A sleep does not. Its length is that of a step on one core: fixed_ms + image_ms x images. Nothing overlaps.
    """
    config, rows = job.config, []
    nbytes = measure.gradient_bytes(models.mnist_cnn())
    reduce, gradients = measure.collectives.reduction(nbytes)
    batches = {"weak": config.batch_size, "strong": divide(config, job.size).batch_size}
    with measure.network.links_of(job) as set_bandwidth:
        measure.collectives.settle()
        for bandwidth in measure.network.bandwidths(config.bandwidths):
            set_bandwidth(bandwidth)
            for kind, batch_size in batches.items():
                computing = (config.fixed_ms + config.image_ms * batch_size) / 1e3

                def step(computing=computing):
                    time.sleep(computing)
                    if job.size > 1:
                        reduce(gradients)

                ((median, low, high),) = measure.network.timed([step], seconds=4.0)
                rows.append({"bandwidth": bandwidth, "kind": kind, "batch_size": batch_size,
                             "compute_seconds": computing, "step_seconds": median, "step_seconds_low": low,
                             "step_seconds_high": high})
                job.print_once(f"{kind}, {bandwidth}: {1e3 * computing:.1f} ms computing, {1e3 * median:.1f} ms a step")
    return results.finish(job, [], tables={"sleep": rows}, machines=_machines(), gradient_bytes=nbytes)


def _allreduce(job, nbytes: int) -> dict[str, Any]:
    """Return the time of an all-reduce of all gradients of a step, without computation to overlap with."""
    if job.size == 1:
        return {"gradient_bytes": nbytes}
    rows = measure.collectives.measure(job.layout.backend, [nbytes], 0.5)
    seconds = next(row["seconds"] for row in rows if row["library"].startswith("Horovod"))
    return {"gradient_bytes": nbytes, "allreduce_seconds": seconds}


LAB = Lab(Config, PRESETS, run, sweeps=SWEEPS, data_set="mnist")

if __name__ == "__main__":
    main()
