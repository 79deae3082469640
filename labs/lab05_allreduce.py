"""Lab 5: the all-reduce: how fast, how many bytes, and which messages cross besides gradients.

    labs run lab05_allreduce --workers 2
    labs run lab05_allreduce --workers 2 --study traffic --backend gloo
    sbatch --ntasks-per-node=4 jobs/lab05_allreduce.sh --preset paper
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from labs.command import Options, main
from labs.launch.sweep import Sweep


@dataclasses.dataclass(frozen=True)
class Config:
    """What a student may change in lab 5."""

    study: Literal["speed", "traffic"] = "speed"
    """"speed" times collectives; "traffic" trains, counts bytes on the wire and messages, and times nothing."""
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
    """Traffic: "embedded" (drawn pictures), "real" (after `labs data fetch cifar10`) or a folder with .bin files."""
    model: Literal["photo_cnn", "resnet18"] = "photo_cnn"
    """Traffic: a small network or ResNet-18, both with batch norm."""
    batch_size: int = 16
    """Traffic: images per worker and step; twice and four times as many are counted too."""
    base_lr: float = 0.01
    """Traffic: learning rate of SGD, not scaled: nobody looks at the accuracy."""
    seed: int = 1
    """Of the weights and the order."""


PRESETS = {
    "demo": Config(),
    "paper": Config(largest_mb=256, seconds=60, data="real", model="resnet18", batch_size=32),
}

SPEED = "C3.2, T4: time and bandwidth of collectives over message size, for each backend and raw MPI"
TRAFFIC = "C6, T5: bytes on the wire per step and messages by kind, for each backend"
CYCLE = "C3.2: latency of small messages against Horovod's cycle time"
FUSION = "C3.2: many small tensors, with and without tensor fusion"
SMALL = {"largest_mb": (0.0001,), "seconds": (1.0,)}
SWEEPS = {
    "demo": (
        Sweep("collectives", SPEED, {"backend": ("mpi", "gloo")}, workers=(2,), seeds=(1, 2)),
        Sweep("traffic", TRAFFIC, {"study": ("traffic",), "backend": ("mpi", "gloo")}, workers=(2,), seeds=(1,)),
        Sweep("cycle", CYCLE, SMALL | {"cycle_time_ms": (1.0, 5.0, 20.0)}, workers=(2,), seeds=(1,)),
        Sweep("fusion", FUSION, SMALL | {"fusion_threshold_mb": (0.0, 128.0)}, workers=(2,), seeds=(1,)),
    ),
    "paper": (
        Sweep("collectives", SPEED, {"backend": ("mpi", "gloo")}, workers=(2, 4, 8), seeds=(1, 2, 3)),
        Sweep("traffic", TRAFFIC, {"study": ("traffic",), "backend": ("mpi", "gloo")}, workers=(2, 4), seeds=(1,)),
        Sweep("cycle", CYCLE, SMALL | {"cycle_time_ms": (1.0, 2.0, 5.0, 10.0, 20.0)}, workers=(2, 4)),
        Sweep("fusion", FUSION, SMALL | {"fusion_threshold_mb": (0.0, 1.0, 128.0)}, workers=(2, 4)),
    ),
}


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Time the collectives, or count what training sends, and return the run's record."""
    from labs.training import workers

    if config.study == "traffic":
        options = dataclasses.replace(options, timeline=True)  # It tells the messages, and its writer takes a core.
    with workers.start("lab05_allreduce", config, options) as job:
        job.say("Horovod was built with " + ", ".join(f"{name}: {what}" for name, what in built().items()))
        return _traffic(job) if config.study == "traffic" else _speed(job)


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
    from labs.report import records

    config = job.config
    sizes = collectives.message_sizes(int(config.largest_mb * 2**20))
    found = collectives.measure(job.layout.backend, sizes, config.seconds)
    small = collectives.fusion(tensors=32, nbytes=4096, seconds=config.seconds / 10)
    reduced = [row for row in found if row["collective"] == "allreduce" and row["library"].endswith(job.layout.backend)]
    return records.finish(
        job, [], tables={"collectives": found, "fusion": small, "built": [built()]},
        latency_seconds=reduced[0]["seconds"], busbw_gb_per_sec=reduced[-1]["busbw"] / 1e9,
    )


def _traffic(job):
    """Train an epoch; count its messages, the bytes of its steps, and what gradients alone leave different."""
    import tensorflow as tf

    from labs.datasets import arrays, fetch, parts
    from labs.measure import wire
    from labs.models import cifar, cnn
    from labs.report import records
    from labs.training import horovod_keras as stack
    from labs.training.fit import fit

    config = job.config
    pictures = parts.from_arrays(arrays.read_cifar10(fetch.locate("cifar10", config.data)), 0.0, config.seed)
    classes = len(pictures.class_names)
    model = cifar.resnet18(classes) if config.model == "resnet18" else cnn.photo_cnn(32, classes)
    history = fit(job, model, tf.keras.optimizers.SGD(config.base_lr), pictures.train,
                  batch_size=config.batch_size, epochs=1)
    messages = _messages(job, model)
    bytes_per_step = wire.measure(job, model, pictures.train, [config.batch_size * times for times in (1, 2, 4)])

    # Horovod: the steps above have exchanged gradients, and nothing else.
    moved, statistics = model.trainable_weights, model.non_trainable_weights
    before = wire.spread(statistics)
    unequal = _unequal_accuracies(job, model, pictures.test)
    stack.average_statistics(model)
    return records.finish(
        job, history, tables={"messages": messages, "wire": bytes_per_step, "built": [built()]},
        gradient_bytes=wire.gradient_bytes(model), spread_of_weights=wire.spread(moved),
        spread_of_statistics_before=before, spread_of_statistics_after=wire.spread(statistics), **unequal,
    )


def _messages(job, model) -> list[dict]:
    """End the timeline and return what crossed since the beginning of `fit`, by kind (rank 0)."""
    import re

    from labs.measure import timeline
    from labs.training.timeline import FILE, stop

    stop()
    if job.rank:
        return []
    # Horovod: names a broadcast by its variable, and does not write its size.
    sizes = {f"HorovodBroadcast_{re.sub('[^a-zA-Z0-9_]', '_', variable.name)}":
             variable.shape.num_elements() * variable.dtype.size
             for variable in [*model.variables, *model.optimizer.variables]}
    return timeline.summary(timeline.exchanges(timeline.mend(job.folder / FILE), sizes))


def _unequal_accuracies(job, model, test) -> dict[str, float]:
    """Judge the model on parts of unequal size, as one worker would on all, and as two ways of averaging make of it.

    Worker r has r + 1 shares, and the classes in order, so that the workers' accuracies differ.
    """
    import numpy as np

    from labs.training import horovod_keras as stack

    positions = test.positions[np.argsort(test.labels[test.positions], kind="stable")]
    cuts = np.cumsum(np.arange(1, job.size + 1))[:-1] * len(positions) // sum(range(1, job.size + 1))
    mine = np.split(positions, cuts)[job.rank]
    # Rank 0's model judges for all: the workers' batch-norm statistics differ here.
    guesses = stack.broadcast_object(model.predict(test.images[positions], verbose=0).argmax(-1))
    right = guesses == test.labels[positions]
    accuracy = float(right[np.isin(positions, mine)].mean())
    return {
        "accuracy_of_all": float(right.mean()),
        "accuracy_weighted_mean": stack.mean_over_workers({"accuracy": accuracy}, len(mine))["accuracy"],
        "accuracy_plain_mean": float(np.mean(stack.gather_object(accuracy))),
    }


if __name__ == "__main__":
    main()
