"""Lab 5: the all-reduce: its speed, its bytes on the wire, and the other messages of a training.

    labs run lab05_allreduce --workers 2
    labs run lab05_allreduce --workers 2 --study traffic --backend gloo
    labs run lab05_allreduce --workers 2 --study messages
    labs cluster run lab05_allreduce --study links
    labs cluster sweep lab05_allreduce --preset cluster --only bandwidth
    sbatch --ntasks-per-node=4 jobs/lab05_allreduce.sh --preset paper
"""

import contextlib
import dataclasses
import itertools
from typing import Annotated, Literal

from labs import Lab, LabError, Options, Sweep, datasets, fields, main, measure, models, results, training


@dataclasses.dataclass(frozen=True)
class Config:
    """What a student may change in lab 5."""

    study: Literal["speed", "traffic", "transport", "messages", "links", "bandwidth"] = "speed"
    """"speed" times all-reduces; "traffic" counts the bytes of training steps, "transport" is "speed" and "traffic";
    "messages" lists the messages of an epoch. On `labs cluster`, over links of several bandwidths: "links" times
    all-reduces, "bandwidth" also times training steps of three networks and two batch sizes, which page 5 predicts."""
    backend: fields.Backend = "auto"
    largest_mb: Annotated[float, fields.Range(1e-6, 2**20)] = 16
    """Largest message, in MiB; the smallest has 4 bytes. Study "links" stops at 4, "bandwidth" has its own sizes."""
    seconds: Annotated[float, fields.Range(0.001, 2**20)] = 5
    """Approximate seconds for which the all-reduces are timed; study "bandwidth": for which a step is timed."""
    bandwidths: str = "50mbit,100mbit,200mbit,500mbit,1gbit,2gbit,5gbit,10gbit"
    """Studies "links" and "bandwidth": the bandwidths to which the links are set, separated by commas."""
    cycle_time_ms: fields.CycleTime = 1
    fusion_threshold_mb: fields.FusionThreshold = 128
    data: fields.Cifar10 = "embedded"
    model: Literal["photo_cnn", "resnet18"] = "photo_cnn"
    """Training: a small network or ResNet-18, both with batch norm."""
    batch_size: fields.BatchSize = 16
    """Training: images per worker and step; "traffic" also takes twice and four times as many."""
    base_lr: fields.LearningRate = 0.01
    """Training: learning rate of SGD, not scaled, because the accuracy does not matter here."""
    fp16_allreduce: bool = False
    """Training: send gradients in half precision: half the bytes, and a rounding error in each gradient."""
    seed: fields.Seed = 1


PRESETS = {
    "demo": Config(),
    "paper": Config(largest_mb=256, seconds=60, data="real", model="resnet18", batch_size=32),
    "cluster": Config(study="links"),
}

SPEED = "C3.2, T4: time and bandwidth of an all-reduce over message size, for each backend and raw MPI"
TRAFFIC = "T5: bytes on the wire per step against batch size, for each backend"
MESSAGES = "C6, C7: messages of an epoch by kind, and what differs if only gradients are exchanged"
LINKS = "C3.2, T4, T5: an all-reduce over links of several bandwidths: time, share of the link, bytes of each node"
BANDWIDTH = "C3.2: the step that link and computation predict, and the step that is measured; one worker per node"
LARGEST_OVER_LINKS = 4 * 2**20  # Bytes: larger messages would take minutes over the slowest link.
# Of the study "bandwidth": the networks (units of the MNIST CNN: 1.3, 4.8 and 23.7 MB of gradients), the batches, and
# the bytes of the all-reduces to which it fits each link's constants.
UNITS, BATCH_SIZES, FITTED = (32, 128, 640), (32, 128), (2**18, 2**20, 2**22, 2**23, 3 * 2**23)
STEPS = {"study": ("bandwidth",), "bandwidths": ("100mbit,500mbit,1gbit,2gbit",), "cycle_time_ms": (0.1,),
         "seconds": (2.0,)}
SWEEPS = {
    "demo": (
        Sweep("collectives", SPEED, {"backend": ("mpi", "gloo")}, workers=(2,), seeds=(1, 2)),
        Sweep("traffic", TRAFFIC, {"study": ("traffic",), "backend": ("mpi", "gloo")}, workers=(2,), seeds=(1,)),
        Sweep("messages", MESSAGES, {"study": ("messages",)}, workers=(2,), seeds=(1,)),
    ),
    "paper": (
        Sweep("collectives", SPEED, {"backend": ("nccl", "mpi", "gloo")}, workers=(2, 4, 8), seeds=(1, 2, 3)),
        Sweep("traffic", TRAFFIC, {"study": ("traffic",), "backend": ("mpi", "gloo")}, workers=(2, 4), seeds=(1,)),
        Sweep("messages", MESSAGES, {"study": ("messages",)}, workers=(2, 4), seeds=(1,)),
    ),
    "cluster": (
        Sweep("links", LINKS, {"backend": ("mpi", "gloo")}, (2, 4, 8), (1,), nodes=Sweep.node_per_worker),
        Sweep("bandwidth", BANDWIDTH, STEPS, (2, 3, 4, 8), (1,), nodes=Sweep.node_per_worker),
    ),
}


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Time all-reduces, or count the bytes or messages of a training, and return the run's record."""
    if config.study == "messages":
        options = dataclasses.replace(options, timeline=True)  # This costs a core, but nothing is timed in this study.
    studies = {"messages": _messages, "links": _links, "bandwidth": _bandwidth}
    with training.start(config, options) as job:
        return studies.get(config.study, _measured)(job)


def built() -> dict[str, str]:
    """Return the libraries with which this machine's Horovod was built, and the version of MPI."""
    import horovod.tensorflow as hvd
    from mpi4py import MPI

    return {
        "MPI": MPI.Get_library_version().partition(",")[0] if hvd.mpi_built() else "no",
        "Gloo": "yes" if hvd.gloo_built() else "no",
        "NCCL": str(hvd.nccl_built() or "no"),
    }


def _measured(job):
    """Time all-reduces, count the bytes of training steps, or both, and return the run's record."""
    tables: dict[str, list] = {"built": [built()]}
    metrics: dict[str, float] = {}
    if job.config.study in ("speed", "transport"):
        _speed(job, tables, metrics)
    if job.config.study in ("traffic", "transport"):
        _traffic(job, tables, metrics)
    return results.finish(job, [], tables=tables, **metrics)


def _speed(job, tables, metrics) -> None:
    """Time all-reduces, and the fusion of 200 small tensors."""
    import tensorflow as tf

    config = job.config
    sizes = measure.collectives.message_sizes(int(config.largest_mb * 2**20))
    with tf.device(job.layout.exchange_device):
        measure.collectives.settle()
        rows = measure.collectives.measure(job.layout.backend, sizes, config.seconds)
        fused = measure.collectives.fusion(200, nbytes=4096, seconds=config.seconds / 10)
    tables |= {"collectives": rows, "fusion": fused}
    reduced = _allreduces(rows, job)
    metrics |= {"latency_seconds": reduced[0]["seconds"], "busbw_gb_per_sec": reduced[-1]["busbw"] / 1e9}


def _allreduces(rows, job):
    """Return the rows of Horovod's all-reduces, smallest message first."""
    mine = [row for row in rows if row["library"] == f"Horovod over {job.layout.backend}"]
    return sorted(mine, key=lambda row: row["bytes"])


def _traffic(job, tables, metrics) -> None:
    """Take training steps with several batch sizes, and count the bytes on the wire."""
    import tensorflow as tf

    model, images = _training(job)
    fp16_allreduce, optimizer = job.config.fp16_allreduce, tf.keras.optimizers.SGD(job.config.base_lr)
    measure.wire.compile_distributed(job, model, optimizer, fp16_allreduce=fp16_allreduce)
    batch_sizes = [job.config.batch_size * factor for factor in (1, 2, 4)]
    tables["wire"] = measure.wire.measure(job, model, images.train, batch_sizes, fp16_allreduce=fp16_allreduce)
    metrics["gradient_bytes"] = measure.gradient_bytes(model, fp16_allreduce)


def _training(job):
    """Return a network with batch norm, and the images to train it on."""
    config = job.config
    arrays = datasets.read_cifar10(datasets.locate("cifar10", config.data))
    images = datasets.from_arrays(arrays, validation_split=0.0, seed=config.seed)
    classes = len(images.class_names)
    return models.resnet18(classes) if config.model == "resnet18" else models.photo_cnn(32, classes), images


def _links(job):
    """Time all-reduces over links of each bandwidth, count their bytes, and fit each link's constants."""
    config, rows, links = job.config, [], []
    largest = min(int(config.largest_mb * 2**20), LARGEST_OVER_LINKS)
    sizes = [nbytes for nbytes in measure.collectives.message_sizes(largest) if nbytes == 4 or nbytes >= 2**14]
    bandwidths = measure.network.bandwidths(config.bandwidths)
    with measure.network.links_of(job) as set_bandwidth:
        measure.collectives.settle()
        for bandwidth in bandwidths:
            set_bandwidth(bandwidth)
            measured = measure.network.allreduces(job, sizes, config.seconds)
            rows += [{"bandwidth": bandwidth} | row for row in measured]
            reduced = _allreduces(measured, job)
            constants, last = {}, reduced[-1]
            with contextlib.suppress(LabError):  # A link so fast that other work drowns its times has no constants.
                fitted = results.link_model.fit(reduced, job.size)
                constants = {"latency_ms": 1e3 * fitted.latency, "fitted_megabits_per_sec": 8e-6 * fitted.bandwidth}
            links.append({"bandwidth": bandwidth, **constants, "megabits_per_sec": 8e-6 * last["busbw"],
                          **{name: last[name] for name in ("bytes", "seconds", "sent_bytes", "predicted_bytes")}})
            job.print_once("{bandwidth:>9}: {megabits_per_sec:,.0f} Mbit/s; each node sent {sent_bytes:,.0f} bytes, "
                           "a ring needs {predicted_bytes:,.0f}".format(**links[-1]))
    return results.finish(job, [], tables={"over_links": rows, "links": links})


def _bandwidth(job):
    """Time all-reduces and the steps of all networks over links of each bandwidth.

    "busy" is an unlimited link between nodes whose cores also run something else.
    """
    bandwidths, rows = measure.network.bandwidths(job.config.bandwidths), []
    digits = datasets.from_arrays(datasets.read_mnist(datasets.locate("mnist", "embedded")), 0.0, job.seed)
    with measure.network.links_of(job) as set_bandwidth:
        measure.collectives.settle()
        for name in ("unlimited", "busy", *bandwidths):
            set_bandwidth("unlimited" if name == "busy" else name)
            with measure.network.busy_core() if name == "busy" else contextlib.nullcontext():
                rows += [{"bandwidth": name} | row for row in
                         measure.network.allreduces(job, FITTED, job.config.seconds)]
        cells = list(_cells(job, digits.train, set_bandwidth, bandwidths))
    return results.finish(job, [], tables={"over_links": rows, "cells": cells})


def _cells(job, train, set_bandwidth, bandwidths):
    """Yield a row per network, batch size and bandwidth: the step, and the step that exchanges nothing."""
    import tensorflow as tf

    for units, batch_size in itertools.product(UNITS, BATCH_SIZES):
        model = models.mnist_cnn(units=units)
        measure.wire.compile_distributed(job, model, tf.keras.optimizers.SGD(job.config.base_lr))
        for cell in measure.network.cells(
                job, model, train, batch_size, bandwidths, set_bandwidth, job.config.seconds):
            yield {"units": units} | cell


def _messages(job):
    """Train for an epoch, list its messages, and measure what differs if only gradients are exchanged."""
    import tensorflow as tf

    model, images = _training(job)
    optimizer = tf.keras.optimizers.SGD(job.config.base_lr)
    history = training.fit(
        job, model, optimizer, images.train,
        batch_size=job.config.batch_size, epochs=1, fp16_allreduce=job.config.fp16_allreduce,
    )
    messages = measure.wire.exchanged(job)  # Before the steps below, which are not part of the epoch.

    # Some steps in which the workers exchange gradients and nothing else.
    train, model.train_function.steps = images.train, 1
    shard = datasets.shard(train.positions, job.config.batch_size, job.rank, job.size, 1, job.seed)
    batches = datasets.train_batches(train.images, train.labels, shard, epoch=1, seed=job.seed)
    model.fit(batches, steps_per_epoch=8, shuffle=False, verbose=0)
    before = measure.wire.largest_difference(model.non_trainable_weights)
    unequal = _unequal_accuracies(job, model, images.test)
    training.hvd_ops.average_statistics(model)
    return results.finish(
        job, history, tables={"messages": messages},
        gradient_bytes=measure.gradient_bytes(model, job.config.fp16_allreduce),
        spread_of_weights=measure.wire.largest_difference(model.trainable_weights), spread_of_statistics_before=before,
        spread_of_statistics_after=measure.wire.largest_difference(model.non_trainable_weights), **unequal,
    )


def _unequal_accuracies(job, model, test) -> dict[str, float]:
    """Return the accuracy over all images, and the weighted and plain mean over workers with unequal shards.

    Worker r has r + 1 shares of the images, sorted by class, so that the workers' accuracies differ.
    """
    import numpy as np

    positions = test.positions[np.argsort(test.labels[test.positions], kind="stable")]
    cuts = np.cumsum(np.arange(1, job.size + 1))[:-1] * len(positions) // sum(range(1, job.size + 1))
    mine = np.split(positions, cuts)[job.rank]
    # Rank 0 predicts for all workers, because their batch-norm statistics differ here.
    predictions = training.hvd_ops.broadcast_object(model.predict(test.images[positions], verbose=0).argmax(-1))
    correct = predictions == test.labels[positions]
    accuracy = float(correct[np.isin(positions, mine)].mean())
    return {
        "accuracy_of_all": float(correct.mean()),
        "accuracy_weighted_mean": training.hvd_ops.mean_over_workers({"accuracy": accuracy}, len(mine))["accuracy"],
        "accuracy_plain_mean": float(np.mean(training.hvd_ops.gather_object(accuracy))),
    }


LAB = Lab(Config, PRESETS, run, sweeps=SWEEPS, data_set="cifar10")

if __name__ == "__main__":
    main()
