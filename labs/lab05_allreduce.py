"""Lab 5: the all-reduce: its speed, its bytes on the wire, and the other messages of a training.

    labs run lab05_allreduce --workers 2
    labs run lab05_allreduce --workers 2 --study traffic --backend gloo
    labs run lab05_allreduce --workers 2 --study messages
    labs cluster run lab05_allreduce --study links
    sbatch --ntasks-per-node=4 jobs/lab05_allreduce.sh --preset paper
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from labs import Lab, LabError, Options, Sweep, datasets, fields, main, measure, models, results, training
from labs.run import paths


@dataclasses.dataclass(frozen=True)
class Config:
    """What a student may change in lab 5."""

    study: Literal["speed", "traffic", "transport", "steps", "messages", "links"] = "speed"
    """"speed" times collectives, "links" all-reduces over links of several bandwidths (on `labs cluster`); "traffic"
    counts the bytes of training steps, "transport" is "speed" and "traffic"; "steps" follows a step over time;
    "messages" lists the messages of an epoch."""
    backend: fields.Backend = "mpi"
    """What carries tensors between the workers (those of a GPU go over NCCL, where Horovod was built with it)."""
    largest_mb: Annotated[float, fields.Range(1e-6, 2**20)] = 16
    """Largest message, in MiB; the smallest has 4 bytes. Study "links" stops at 4."""
    seconds: Annotated[float, fields.Range(0.001, 2**20)] = 5
    """Approximate seconds for which the collectives are timed."""
    bandwidths: str = "50mbit,100mbit,200mbit,500mbit,1gbit,2gbit,5gbit,10gbit"
    """Study "links": the bandwidths to which the links are set, separated by commas."""
    cycle_time_ms: fields.CycleTime = 1
    """Milliseconds that Horovod waits for more tensors before it sends those that are ready."""
    fusion_threshold_mb: fields.FusionThreshold = 128
    """MiB of tensors that Horovod sends as one message; 0: one message per tensor."""
    data: str = "embedded"
    """Training: "embedded" (synthetic images), "real" (after `labs data fetch cifar10`) or a folder with .bin files."""
    model: Literal["photo_cnn", "resnet18"] = "photo_cnn"
    """Training: a small network or ResNet-18, both with batch norm."""
    batch_size: fields.BatchSize = 16
    """Training: images per worker and step; "traffic" also takes twice and four times as many."""
    base_lr: fields.LearningRate = 0.01
    """Training: learning rate of SGD, not scaled, because the accuracy does not matter here."""
    fp16_allreduce: bool = False
    """Training: send gradients in half precision: half the bytes, and a rounding error in each gradient."""
    seed: fields.Seed = 1
    """Seed of the weights and the order of the images."""


PRESETS = {
    "demo": Config(),
    "paper": Config(largest_mb=256, seconds=60, data="real", model="resnet18", batch_size=32),
    "cluster": Config(study="links"),
}

SPEED = "C3.2, T4: time and bandwidth of collectives over message size, for each backend and raw MPI"
TRAFFIC = "T5: bytes on the wire per step against batch size, for each backend"
MESSAGES = "C6, C7: messages of an epoch by kind, and what differs if only gradients are exchanged"
CYCLE = "C3.2: latency of small messages against Horovod's cycle time"
FUSION = "C3.2: many small tensors, with and without tensor fusion"
LINKS = "C3.2, T4, T5: an all-reduce over links of several bandwidths: time, share of the link, bytes of each node"
LARGEST_OVER_LINKS = 4 * 2**20
"""Bytes: larger messages would take minutes over the slowest link, and show the same bandwidth."""
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
    "cluster": (
        Sweep("links", LINKS, {"backend": ("mpi", "gloo")}, (2, 4, 8), (1,), nodes=Sweep.node_per_worker),
    ),
}


def run(config: Config, options: Options = Options()):  # noqa: B008 - frozen
    """Time the collectives, or count the bytes or messages of a training, and return the run's record."""
    if config.study == "steps":
        return _steps(config, options)
    if config.study == "messages":
        options = dataclasses.replace(options, timeline=True)  # This costs a core, but nothing is timed in this study.
    with training.start(config, options) as job:
        job.print_once("Horovod was built with " + ", ".join(f"{name}: {what}" for name, what in built().items()))
        if config.study in MEASUREMENTS:
            return _measured(job)
        return {"messages": _messages, "links": _links}[config.study](job)


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
    """Carry out the measurements of a study, and return the record with all their tables and metrics."""
    tables: dict[str, list] = {"built": [built()]}
    metrics: dict[str, float] = {}
    for measurement in MEASUREMENTS[job.config.study]:
        rows, figures = measurement(job)
        tables |= rows
        metrics |= figures
    return results.finish(job, [], tables=tables, **metrics)


def _speed(job):
    """Time the collectives and the fusion of many small tensors; return tables and metrics."""
    config = job.config
    sizes = measure.collectives.message_sizes(int(config.largest_mb * 2**20))
    first = measure.collectives.settle(job.layout.backend)
    rows = measure.collectives.measure(job.layout.backend, sizes, config.seconds)
    small = measure.collectives.fusion(tensors=32, nbytes=4096, seconds=config.seconds / 10)
    reduced = allreduces(rows, f"Horovod over {job.layout.backend}")
    tables = {"first_calls": first, "collectives": rows, "fusion": small}
    return tables, {"latency_seconds": reduced[0]["seconds"], "busbw_gb_per_sec": reduced[-1]["busbw"] / 1e9}


def _links(job):
    """Time all-reduces over links of each bandwidth, count their bytes, and fit each link's constants."""
    config, library, rows, links = job.config, f"Horovod over {job.layout.backend}", [], []
    largest = min(int(config.largest_mb * 2**20), LARGEST_OVER_LINKS)
    sizes = [nbytes for nbytes in measure.collectives.message_sizes(largest) if nbytes == 4 or nbytes >= 2**14]
    bandwidths = measure.network.bandwidths(config.bandwidths)
    with measure.network.links_of(job) as set_bandwidth:
        measure.collectives.settle(job.layout.backend)
        for bandwidth in bandwidths:
            set_bandwidth(bandwidth)
            measured = measure.network.allreduces(job, sizes, config.seconds)
            rows += [{"bandwidth": bandwidth} | row for row in measured]
            links.append({"bandwidth": bandwidth} | _link(allreduces(measured, library), job.size))
            job.print_once("{bandwidth:>9}: {megabits_per_sec:,.0f} Mbit/s; each node sent {sent_bytes:,.0f} bytes, "
                           "a ring needs {predicted_bytes:,.0f}".format(**links[-1]))
    return results.finish(job, [], tables={"over_links": rows, "links": links, "built": [built()]})


def _link(rows, size):
    """Return a link's row: its fitted constants, and what its largest all-reduce has reached and sent.

    A link so fast that other work drowns its times has no constants.
    """
    constants, last = {}, rows[-1]
    with contextlib.suppress(LabError):
        fitted = results.link_model.fit(rows, size)
        constants = {"latency_ms": 1e3 * fitted.latency, "fitted_megabits_per_sec": 8e-6 * fitted.bandwidth}
    return {**constants, "bytes": last["bytes"], "seconds": last["seconds"], "megabits_per_sec": 8e-6 * last["busbw"],
            "sent_bytes": last["sent_bytes"], "predicted_bytes": last["predicted_bytes"]}


def allreduces(rows: Sequence[dict[str, Any]], library: str) -> list[dict[str, Any]]:
    """Return the rows of one library's all-reduces, smallest message first.

    Args:
        rows: Rows of a table "collectives".
        library: Its full name, such as "Horovod over MPI" or "raw MPI".
    """
    mine = [row for row in rows if row["collective"] == "allreduce" and row["library"] == library]
    return sorted(mine, key=lambda row: row["bytes"])


def small_messages(record: dict[str, Any]) -> str:
    """Describe how long a small all-reduce takes, in the first calls of a run and later.

    Args:
        record: The record of a run with study "speed".
    """
    library, cycle = f"Horovod over {record['layout']['backend']}", record["machine"]["cycle_time_ms"]
    (first,) = [row for row in record["tables"]["first_calls"] if row["library"] == library]
    small = allreduces(record["tables"]["collectives"], library)[0]
    later = 1e3 * small["seconds"]
    return (f"{library}, {small['bytes']} bytes: {1e3 * first['first_seconds']:.1f} ms in the run's first call, "
            f"{1e3 * first['next_seconds']:.1f} ms in the next nine, {later:.1f} ms once settled "
            f"({later / cycle:.1f} cycles of {cycle:g} ms)")


TIMELINE = {"HOROVOD_TIMELINE": "DYNAMIC", "HOROVOD_CACHE_CAPACITY": "0"}
"""Environment variables for `step_over_time`: the timeline can start, and without a cache each rank's request shows."""
FILE = "step.json"
STEPS = 9
"""Steps with the timeline on; one of median length is shown."""


def _steps(config, options):
    """Follow a step over time with the Config's cycle and fusion threshold; the run's folder has the timeline."""
    os.environ |= TIMELINE
    with training.start(config, options) as job:
        mine = step_over_time(str(job.folder / FILE))
        rows = [row for each in training.hvd_ops.gather_object(mine) for row in each]
        return results.finish(job, [], tables={"steps": rows, "built": [built()]})


def followed(record: dict[str, Any]) -> tuple[list, list]:
    """Return the events and the computation of a run with study "steps", as `drawings.typical_step` takes them.

    Args:
        record: Of a run in the results folder.
    """
    folder = paths.results_dir() / record["lab"] / record["run"]
    return measure.timeline.read(folder / FILE), record["tables"]["steps"]


def step_over_time(path: str, pause: float = 0.0, layers: int = 4, width: int = 512, images: int = 256,
                   steps: int = STEPS) -> list[dict[str, Any]]:
    """Take training steps of a dense network with Horovod's timeline on; return when this rank computed what.

    Every rank calls it, after an `hvd.init` with the environment variables of TIMELINE. The rows are those that
    `labs.course.drawings.typical_step` takes. The backward pass is written out, so that the clock can be read after
    each layer.

    Args:
        path: Where rank 0 writes the timeline.
        pause: Seconds that this rank sleeps before its backward pass: a slow rank.
        layers: Dense layers without bias, with ReLU.
        width: Inputs and outputs of each layer.
        images: Rows of this rank's batch.
        steps: Steps with the timeline; three before it let the run settle.
    """
    import horovod.tensorflow as hvd
    import tensorflow as tf

    weights = [tf.Variable(tf.random.stateless_normal([width, width], [layer, 1], stddev=(2 / width)**0.5))
               for layer in range(layers)]
    inputs = tf.random.stateless_normal([images, width], [hvd.rank(), 2])

    def read_clock(*done):
        with tf.control_dependencies(done):
            return tf.timestamp()

    @tf.function(autograph=False)
    def step():
        clock = [read_clock()]
        with tf.control_dependencies(clock):
            hidden = [tf.identity(inputs)]
        for weight in weights:
            hidden.append(tf.nn.relu(hidden[-1] @ weight))
        clock.append(read_clock(hidden[-1]))
        with tf.control_dependencies(clock[-1:]):
            slept = tf.numpy_function(_sleep, [tf.constant(pause, tf.float64)], tf.float64) if pause else clock[-1]
        clock.append(read_clock(slept))
        delta, means = hidden[-1] - inputs, []  # The loss is half of the squared distance to the inputs.
        for layer in reversed(range(layers)):
            with tf.control_dependencies(clock[-1:]):
                delta = tf.where(hidden[layer + 1] > 0, delta, 0.0)
                gradient = tf.matmul(hidden[layer], delta, transpose_a=True) / images
                delta = tf.matmul(delta, weights[layer], transpose_b=True)
            clock.append(read_clock(gradient, delta))
            # Horovod: the gradient of a layer is sent while those of the layers before it are still computed.
            means.append((weights[layer], hvd.allreduce(gradient, name=f"layer{layer + 1}")))
        clock.append(read_clock(*(mean for _, mean in means)))
        with tf.control_dependencies(clock[-1:]):
            updates = [weight.assign_sub(0.001 * mean, read_value=False) for weight, mean in means]
        clock.append(read_clock(*updates))
        return tf.stack(clock)

    for _ in range(3):
        step()
    hvd.start_timeline(path)
    time.sleep(0.1)  # Horovod: the timeline starts with the next cycle, of 20 ms on the page of this lab.
    marks = [step().numpy() for _ in range(steps)]
    hvd.stop_timeline()
    time.sleep(0.1)  # The file is written by a thread.
    names = [("forward", ""), ("sleep", ""), *(("backward", f"layer {layer}") for layer in range(layers, 0, -1)),
             ("wait", ""), ("apply", "")]
    rows = [{"rank": hvd.rank(), "step": number, "phase": phase, "name": name, "began": float(began),
             "ended": float(ended)} for number, clock in enumerate(marks)
            for (phase, name), began, ended in zip(names, clock, clock[1:], strict=False)]
    return [row for row in rows if row["phase"] != "wait" and (pause or row["phase"] != "sleep")]


def _sleep(seconds):
    time.sleep(seconds)
    return seconds


def _training(job):
    """Return a network with batch norm, and the images to train it on."""
    config = job.config
    arrays = datasets.read_cifar10(datasets.locate("cifar10", config.data))
    images = datasets.from_arrays(arrays, validation_split=0.0, seed=config.seed)
    classes = len(images.class_names)
    return models.resnet18(classes) if config.model == "resnet18" else models.photo_cnn(32, classes), images


def _traffic(job):
    """Take training steps with several batch sizes, and count the bytes on the wire; return tables and metrics."""
    import tensorflow as tf

    model, images = _training(job)
    fp16_allreduce, optimizer = job.config.fp16_allreduce, tf.keras.optimizers.SGD(job.config.base_lr)
    measure.wire.compile_distributed(model, optimizer, fp16_allreduce=fp16_allreduce)
    batch_sizes = [job.config.batch_size * factor for factor in (1, 2, 4)]
    rows = measure.wire.measure(job, model, images.train, batch_sizes, fp16_allreduce=fp16_allreduce)
    return {"wire": rows}, {"gradient_bytes": measure.gradient_bytes(model, fp16_allreduce)}


MEASUREMENTS = {"speed": (_speed,), "traffic": (_traffic,), "transport": (_speed, _traffic)}
"""What the studies measure that return tables and metrics."""


def _messages(job):
    """Train for an epoch, list its messages, and measure what differs if only gradients are exchanged."""
    import tensorflow as tf

    model, images = _training(job)
    optimizer = tf.keras.optimizers.SGD(job.config.base_lr)
    history = training.fit(
        job, model, optimizer, images.train,
        batch_size=job.config.batch_size, epochs=1, fp16_allreduce=job.config.fp16_allreduce,
    )
    messages = results.exchanged(job)  # Before the steps below, which are not part of the epoch.

    _exchange_gradients_only(job, model, images.train)
    before = measure.wire.largest_difference(model.non_trainable_weights)
    unequal = _unequal_accuracies(job, model, images.test)
    training.hvd_ops.average_statistics(model)
    return results.finish(
        job, history, tables={"messages": messages, "built": [built()]},
        gradient_bytes=measure.gradient_bytes(model, job.config.fp16_allreduce),
        spread_of_weights=measure.wire.largest_difference(model.trainable_weights), spread_of_statistics_before=before,
        spread_of_statistics_after=measure.wire.largest_difference(model.non_trainable_weights), **unequal,
    )


def _exchange_gradients_only(job, model, train, steps: int = 8) -> None:
    """Take some steps in which the workers exchange gradients and nothing else."""
    shard = datasets.shard(train.positions, job.config.batch_size, job.rank, job.size, 1, job.seed)
    training.keras_internals.set_steps_per_execution(model, 1)
    batches = datasets.train_batches(train.images, train.labels, shard, epoch=1, seed=job.seed)
    model.fit(batches, steps_per_epoch=steps, shuffle=False, verbose=0)


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
