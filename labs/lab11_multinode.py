"""Lab 11: the same training over several nodes: layouts, what grows with them, accuracy, weak and strong scaling.

    labs run lab11_multinode --workers 2
    labs sweep lab11_multinode
    sbatch -N 2 --ntasks-per-node=4 --gpus-per-node=4 jobs/lab11_multinode.sh --preset paper
    labs sweep lab11_multinode --preset paper --sbatch
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from labs.report import layouts
from labs.run.options import Options
from labs.run.sweeps import Sweep, divide
from labs.run.worker import main


@dataclasses.dataclass(frozen=True)
class Config:
    """What a student may change in lab 11. Nodes and workers are not here: they are the launch's."""

    data: str = "embedded"
    """"embedded" (1,797 small digits), "real" (after `labs data fetch mnist`) or a folder with mnist.npz."""
    images: int = 720
    """Training images to use, to keep a demo short; 0: all."""
    batch_size: int = 32
    """Images per worker and step."""
    base_batch_size: int = 32
    """Images per step for which base_lr is right; the global batch is k times as large."""
    epochs: int = 3
    """Passes over the training images; the first is left out of all rates."""
    base_lr: float = 0.001
    """Learning rate of Adam for base_batch_size images per step."""
    scaling: Literal["linear", "sqrt", "none"] = "linear"
    """How the learning rate grows with k."""
    warmup_epochs: float = 0
    """Epochs to climb from base_lr to the scaled rate; 0 begins with the scaled rate."""
    threads: int = 1
    """TensorFlow's threads of one worker; 0: its share of the node's cores."""
    seed: int = 1
    """Of the weights, the order and dropout."""


# Report M: 128 images per worker, so that linear scaling is its 0.001 * hvd.size().
PRESETS = {
    "demo": Config(),
    "paper": Config(data="real", images=0, batch_size=128, base_batch_size=128, epochs=40, threads=0),
}


def _two(workers: int) -> int:
    return 2


def _each(workers: int) -> int:
    return workers


ACCURACY = "M6: test accuracy on two nodes, by workers; M5: the learning rate that goes with their batch"
WEAK = "A5: weak scaling, the batch of a worker held; one worker on each node"
STRONG = "A6: strong scaling, the global batch held, and with it the learning rate; one worker on each node"
SHORT = {"epochs": (3,)}  # Two epochs are timed, after the first.
SWEEPS = {
    # As if each core were a node.
    "demo": (
        Sweep("accuracy", ACCURACY, {"scaling": ("linear", "sqrt", "none")}, (2,)),
        Sweep("weak", WEAK),
        Sweep("strong", STRONG, adapt=divide),
    ),
    "paper": (
        Sweep("accuracy", ACCURACY, {"scaling": ("linear", "sqrt")}, (2, 6, 8), nodes=_two),
        Sweep("weak", WEAK, SHORT, (1, 2, 4, 8), nodes=_each),
        Sweep("strong", STRONG, SHORT, (1, 2, 4, 8), adapt=divide, nodes=_each),
    ),
}


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Say the layout, train on this worker's share, time the exchange, and return the run's record."""
    import tensorflow as tf

    from labs.datasets import arrays, fetch, splits
    from labs.measure import wire
    from labs.models import cnn
    from labs.report import run_record
    from labs.training import schedule, workers
    from labs.training.loop import evaluate, fit

    with workers.start("lab11_multinode", config, options) as job:
        digits = splits.from_arrays(arrays.read_mnist(fetch.locate("mnist", config.data)), 0.0, config.seed)
        train = dataclasses.replace(digits.train, positions=digits.train.positions[:config.images or None])
        machines, planned = _machines(), plan(config, len(train), job.size)
        job.say("\n".join(told(config, job.layout.hosts, machines, planned)))

        model = cnn.mnist_cnn()
        climb = int(config.warmup_epochs * planned["steps_per_epoch"])
        rate = schedule.Warmup(config.base_lr, planned["scaled_lr"], climb)
        history = fit(job, model, tf.keras.optimizers.Adam(rate), train,
                      batch_size=config.batch_size, epochs=config.epochs)
        test = evaluate(job, model, digits.test, config.batch_size)
        return run_record.finish(
            job, history, test_accuracy=test["accuracy"], test_loss=test["loss"], test_images=len(digits.test),
            machines=machines, scaled_lr=planned["scaled_lr"], **_exchange(job, wire.gradient_bytes(model)),
        )


def plan(config: Config, images: int, size: int) -> dict[str, float]:
    """Return what follows from the number of workers: global batch, k, learning rate, steps per epoch.

    Args:
        config: The experiment.
        images: Number of training images.
        size: Number of workers, of all nodes.
    """
    from labs.datasets.sharding import steps_per_epoch
    from labs.training.schedule import scaled_lr

    # Horovod: a step is one of all workers on all nodes, so its images, and what follows from them, grow with `size`.
    k = config.batch_size * size / config.base_batch_size
    return {"global_batch_size": config.batch_size * size, "k": k,
            "scaled_lr": scaled_lr(config.base_lr, k, config.scaling),
            "steps_per_epoch": steps_per_epoch(images, config.batch_size, size)}


def told(config: Config, hosts: Sequence[str], machines: int, planned: dict[str, float]) -> Iterator[str]:
    """Yield what is said before the training: the layout as it is, what follows from it, and what is odd about it.

    Args:
        config: The experiment.
        hosts: The node of every rank.
        machines: On how many machines these nodes are.
        planned: From `plan`.
    """
    counts = Counter(hosts)
    where = "; " + ", ".join(f"{count} on {node}" for node, count in counts.items()) if len(counts) > 1 else ""
    yield f"layout: {layouts.shape(hosts, machines)} (nodes x workers on each){where}"
    yield (f"global batch: {len(hosts)} x {config.batch_size} = {planned['global_batch_size']} images, "
           f"{planned['steps_per_epoch']} steps per epoch")
    climb = f", after {config.warmup_epochs:g} epochs of warmup" if config.warmup_epochs else ""
    yield (f"learning rate: {config.base_lr:g} -> {planned['scaled_lr']:.4g}: scaling {config.scaling}, "
           f"k = {planned['global_batch_size']} / {config.base_batch_size} = {planned['k']:g}{climb}")
    if len(set(counts.values())) > 1:
        yield "odd: the nodes hold unequal numbers of workers; all wait for those that have to share most"
    granted = int(os.environ.get("SLURM_JOB_NUM_NODES", 0))  # Of the job; tasks are those of mpirun's own srun here.
    if granted > len(counts):
        yield (f"odd: Slurm granted {granted} nodes, and the workers are on {len(counts)}: mpirun fills the first node "
               "before the next; --workers goes with nodes x tasks")


def _machines() -> int:
    """Return on how many machines the workers run: a test cluster's nodes may all be one."""
    from labs.training import hvd_ops

    # Horovod: each worker knows the start of its own machine alone; all that share a machine name the same one.
    return len(set(hvd_ops.gather_object(Path("/proc/sys/kernel/random/boot_id").read_text())))


def _exchange(job, nbytes: int) -> dict[str, Any]:
    """Return how long all gradients of a step take to be summed over this layout, with no computing to hide behind."""
    from labs.measure import collectives

    if job.size == 1:  # Nobody to exchange with.
        return {"gradient_bytes": nbytes}
    rows = collectives.measure(job.layout.backend, [nbytes], seconds=0.5)
    seconds = next(row["seconds"] for row in rows if row["library"].startswith("Horovod"))
    return {"gradient_bytes": nbytes, "allreduce_seconds": seconds}


summary = layouts.summary


if __name__ == "__main__":
    main()
