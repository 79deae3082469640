"""Lab 5: the all-reduce: how fast, how many bytes, and which messages cross besides gradients.

    labs run lab05_allreduce --workers 2
    labs run lab05_allreduce --workers 2 --study traffic --backend gloo
    labs run lab05_allreduce --workers 2 --study messages
    sbatch --ntasks-per-node=4 jobs/lab05_allreduce.sh --preset paper
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

from labs.run.options import Options
from labs.run.sweeps import Sweep
from labs.run.worker import main


@dataclasses.dataclass(frozen=True)
class Config:
    """What a student may change in lab 5."""

    study: Literal["speed", "traffic", "messages"] = "speed"
    """"speed" times collectives, "traffic" counts the bytes of training steps, "messages" what an epoch sends."""
    backend: Literal["mpi", "gloo"] = "mpi"
    """What carries tensors between the workers (those of a GPU go over NCCL, where Horovod was built with it)."""
    largest_mb: float = 16
    """Largest message, in MiB; the smallest has 4 bytes."""
    seconds: float = 5
    """About how long to time the collectives."""
    cycle_time_ms: float = 1
    """How long Horovod waits for more tensors before it sends what is ready."""
    fusion_threshold_mb: float = 128
    """MiB of tensors that Horovod sends as one message; 0: each by itself."""
    data: str = "embedded"
    """Training: "embedded" (drawn pictures), "real" (after `labs data fetch cifar10`) or a folder with .bin files."""
    model: Literal["photo_cnn", "resnet18"] = "photo_cnn"
    """Training: a small network or ResNet-18, both with batch norm."""
    batch_size: int = 16
    """Training: images per worker and step; "traffic" also takes twice and four times as many."""
    base_lr: float = 0.01
    """Training: learning rate of SGD, not scaled: nobody looks at the accuracy."""
    seed: int = 1
    """Of the weights and the order."""


PRESETS = {
    "demo": Config(),
    "paper": Config(largest_mb=256, seconds=60, data="real", model="resnet18", batch_size=32),
}

SPEED = "C3.2, T4: time and bandwidth of collectives over message size, for each backend and raw MPI"
TRAFFIC = "T5: bytes on the wire per step against batch size, for each backend"
MESSAGES = "C6, C7: messages of an epoch by kind, and what gradients alone leave different"
CYCLE = "C3.2: latency of small messages against Horovod's cycle time"
FUSION = "C3.2: many small tensors, with and without tensor fusion"
SMALL = {"largest_mb": (0.0001,), "seconds": (1.0,)}
SWEEPS = {
    "demo": (
        Sweep("collectives", SPEED, {"backend": ("mpi", "gloo")}, workers=(2,), seeds=(1, 2)),
        Sweep("traffic", TRAFFIC, {"study": ("traffic",), "backend": ("mpi", "gloo")}, workers=(2,), seeds=(1,)),
        Sweep("messages", MESSAGES, {"study": ("messages",)}, workers=(2,), seeds=(1,)),
        Sweep("cycle", CYCLE, SMALL | {"cycle_time_ms": (1.0, 5.0, 20.0)}, workers=(2,), seeds=(1,)),
        Sweep("fusion", FUSION, SMALL | {"fusion_threshold_mb": (0.0, 128.0)}, workers=(2,), seeds=(1,)),
    ),
    "paper": (
        Sweep("collectives", SPEED, {"backend": ("mpi", "gloo")}, workers=(2, 4, 8), seeds=(1, 2, 3)),
        Sweep("traffic", TRAFFIC, {"study": ("traffic",), "backend": ("mpi", "gloo")}, workers=(2, 4), seeds=(1,)),
        Sweep("messages", MESSAGES, {"study": ("messages",)}, workers=(2, 4), seeds=(1,)),
        Sweep("cycle", CYCLE, SMALL | {"cycle_time_ms": (1.0, 2.0, 5.0, 10.0, 20.0)}, workers=(2, 4)),
        Sweep("fusion", FUSION, SMALL | {"fusion_threshold_mb": (0.0, 1.0, 128.0)}, workers=(2, 4)),
    ),
}


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Time the collectives, or count what training sends, and return the run's record."""
    from labs.training import workers

    if config.study == "messages":
        options = dataclasses.replace(options, timeline=True)  # It costs a core: nothing is timed in this study.
    with workers.start("lab05_allreduce", config, options) as job:
        job.say("Horovod was built with " + ", ".join(f"{name}: {what}" for name, what in built().items()))
        return {"speed": _speed, "traffic": _traffic, "messages": _messages}[config.study](job)


def built() -> dict[str, str]:
    """Return what this machine's Horovod was built with, and the MPI that it has loaded."""
    import horovod.tensorflow as hvd
    from mpi4py import MPI

    return {
        "MPI": MPI.Get_library_version().partition(",")[0] if hvd.mpi_built() else "no",
        "Gloo": "yes" if hvd.gloo_built() else "no",
        "NCCL": str(hvd.nccl_built() or "no"),
    }


def _speed(job):
    """Time the collectives and the fusion of many small tensors."""
    from labs.measure import collectives
    from labs.report import run_record

    config = job.config
    sizes = collectives.message_sizes(int(config.largest_mb * 2**20))
    first = collectives.settle(job.layout.backend)
    found = collectives.measure(job.layout.backend, sizes, config.seconds)
    small = collectives.fusion(tensors=32, nbytes=4096, seconds=config.seconds / 10)
    reduced = allreduces(found, f"Horovod over {job.layout.backend}")
    return run_record.finish(
        job, [], tables={"first_calls": first, "collectives": found, "fusion": small, "built": [built()]},
        latency_seconds=reduced[0]["seconds"], busbw_gb_per_sec=reduced[-1]["busbw"] / 1e9,
    )


def allreduces(rows: Sequence[dict[str, Any]], library: str) -> list[dict[str, Any]]:
    """Return the all-reduces that one library made, the smallest message first.

    Args:
        rows: Of a table "collectives".
        library: Its whole name: "Horovod over MPI" and "raw MPI" end alike and are two libraries.
    """
    mine = [row for row in rows if row["collective"] == "allreduce" and row["library"] == library]
    return sorted(mine, key=lambda row: row["bytes"])


def small_messages(record: dict[str, Any]) -> str:
    """Return in words what a small all-reduce takes, in the first calls of a run and later.

    Args:
        record: Of the study "speed".
    """
    library, cycle = f"Horovod over {record['layout']['backend']}", record["machine"]["cycle_time_ms"]
    (first,) = [row for row in record["tables"]["first_calls"] if row["library"] == library]
    small = allreduces(record["tables"]["collectives"], library)[0]
    later = 1e3 * small["seconds"]
    return (f"{library}, {small['bytes']} bytes: {1e3 * first['first_seconds']:.1f} ms in the run's first call, "
            f"{1e3 * first['next_seconds']:.1f} ms in the next nine, {later:.1f} ms once settled "
            f"({later / cycle:.1f} cycles of {cycle:g} ms)")


def _training(job):
    """Return a network with batch norm and the pictures it is trained on."""
    from labs.datasets import arrays, fetch, splits
    from labs.models import cifar, cnn

    config = job.config
    pictures = splits.from_arrays(arrays.read_cifar10(fetch.locate("cifar10", config.data)), 0.0, config.seed)
    classes = len(pictures.class_names)
    return cifar.resnet18(classes) if config.model == "resnet18" else cnn.photo_cnn(32, classes), pictures


def _traffic(job):
    """Take training steps of several batch sizes and count the bytes that cross."""
    import tensorflow as tf

    from labs.measure import wire
    from labs.report import run_record
    from labs.training import hvd_ops
    from labs.training.loop import compile_for

    model, pictures = _training(job)
    # Horovod: the optimizer and the equal beginning that `fit` gives a model.
    optimizer = hvd_ops.distributed_optimizer(tf.keras.optimizers.SGD(job.config.base_lr))
    compile_for(model, optimizer, "sparse_categorical_crossentropy", ())
    hvd_ops.broadcast_state(model)
    rows = wire.measure(job, model, pictures.train, [job.config.batch_size * times for times in (1, 2, 4)])
    return run_record.finish(job, [], tables={"wire": rows, "built": [built()]},
                             gradient_bytes=wire.gradient_bytes(model))


def _messages(job):
    """Train an epoch, list what it has sent, and show what gradients alone leave different."""
    import tensorflow as tf

    from labs.measure import wire
    from labs.report import run_record
    from labs.training import hvd_ops
    from labs.training.loop import fit

    model, pictures = _training(job)
    history = fit(job, model, tf.keras.optimizers.SGD(job.config.base_lr), pictures.train,
                  batch_size=job.config.batch_size, epochs=1)
    sent = run_record.exchanged(job)  # Now: what follows is not part of the epoch.

    _some_steps(job, model, pictures.train)
    before = wire.largest_difference(model.non_trainable_weights)
    unequal = _unequal_accuracies(job, model, pictures.test)
    hvd_ops.average_statistics(model)
    return run_record.finish(
        job, history, tables={"messages": sent, "built": [built()]}, gradient_bytes=wire.gradient_bytes(model),
        spread_of_weights=wire.largest_difference(model.trainable_weights), spread_of_statistics_before=before,
        spread_of_statistics_after=wire.largest_difference(model.non_trainable_weights), **unequal,
    )


def _some_steps(job, model, train, steps: int = 8) -> None:
    """Take some steps in which the workers exchange their gradients and nothing else."""
    from labs.datasets.pipeline import train_batches
    from labs.datasets.sharding import shard

    mine = shard(train.positions, job.config.batch_size, job.rank, job.size, 1, job.config.seed)
    model._steps_per_execution.assign(1)
    model.fit(train_batches(train.images, train.labels, mine, epoch=1, seed=job.config.seed),
              steps_per_epoch=steps, verbose=0)


def _unequal_accuracies(job, model, test) -> dict[str, float]:
    """Judge the model on parts of unequal size, as one worker would on all, and as two ways of averaging make of it.

    Worker r has r + 1 shares, and the classes in order, so that the workers' accuracies differ.
    """
    import numpy as np

    from labs.training import hvd_ops

    positions = test.positions[np.argsort(test.labels[test.positions], kind="stable")]
    cuts = np.cumsum(np.arange(1, job.size + 1))[:-1] * len(positions) // sum(range(1, job.size + 1))
    mine = np.split(positions, cuts)[job.rank]
    # Rank 0's model judges for all: the workers' batch-norm statistics differ here.
    guesses = hvd_ops.broadcast_object(model.predict(test.images[positions], verbose=0).argmax(-1))
    right = guesses == test.labels[positions]
    accuracy = float(right[np.isin(positions, mine)].mean())
    return {
        "accuracy_of_all": float(right.mean()),
        "accuracy_weighted_mean": hvd_ops.mean_over_workers({"accuracy": accuracy}, len(mine))["accuracy"],
        "accuracy_plain_mean": float(np.mean(hvd_ops.gather_object(accuracy))),
    }


if __name__ == "__main__":
    main()
