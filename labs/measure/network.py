"""Timing of all-reduces and training steps over the links of `labs cluster`, at several bandwidths.

`labs.results.link_model` predicts a step over a link from the all-reduces and from the step's computation.
"""

import contextlib
import functools
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from labs.datasets.splits import Subset
from labs.measure import collectives, throughput, wire
from labs.run import cluster_state
from labs.run.errors import LabError
from labs.training import hvd_ops
from labs.training.keras_internals import take_steps, tf_variable
from labs.training.loop import local_copy
from labs.training.workers import Job

Row = dict[str, Any]
STEPS = 5, 40  # Least and most steps of a measurement.
CALLS = 3
"""All-reduces whose bytes are counted, and graphs that are traced to find when gradients are ready."""


def bandwidths(text: str) -> list[str]:
    """Return the bandwidths of a list such as "100mbit,1gbit"; raise a LabError if an item is not a bandwidth."""
    names = [bandwidth.strip() for bandwidth in text.split(",")]
    for name in names:
        cluster_state.bits_per_second(name)
    return names


@contextlib.contextmanager
def links_of(job: Job) -> Iterator[Callable[[str], None]]:
    """Yield a function, for all workers to call, that sets all links of `labs cluster`; restore them at the end."""
    if not cluster_state.inside():
        raise LabError("this study needs `labs cluster`: run `labs cluster up --nodes 2`, then use `labs cluster run` "
                       "instead of `labs run`")

    def set_bandwidth(bandwidth: str) -> None:
        hvd_ops.barrier()
        if job.rank == 0:
            cluster_state.set_bandwidth(bandwidth)
        hvd_ops.barrier()

    with cluster_state.restore_links() if job.rank == 0 else contextlib.nullcontext():
        yield set_bandwidth


@contextlib.contextmanager
def busy_core() -> Iterator[None]:
    """Keep one core of this worker's node busy in the block, as a training step does; all workers may call it."""
    # It does not outlive the worker, even if that is killed.
    program = subprocess.Popen(["setpriv", "--pdeathsig=KILL", sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        program.kill()
        program.wait()


def allreduces(job: Job, sizes: Sequence[int], seconds: float) -> list[Row]:
    """Return a row per message size and library: the time of an all-reduce, and the mean bytes that a node has sent."""
    rows = collectives.measure(job.layout.backend, sizes, seconds)
    sent = {}
    for nbytes in sorted({row["bytes"] for row in rows}):
        reduce, tensor = collectives.reduction(nbytes)
        sent[nbytes], _ = wire.count(job, lambda: [reduce(tensor) for _ in range(CALLS)])  # noqa: B023 - called at once
    return [row | {"nodes": job.layout.nodes, "predicted_bytes": collectives.busbw_factor(job.size) * row["bytes"],
                   "sent_bytes": sent[row["bytes"]] / CALLS / job.layout.nodes} for row in rows]


def cells(job: Job, model: tf.keras.Model, train: Subset, batch_size: int, bandwidths: Sequence[str],
          set_bandwidth: Callable[[str], None], seconds: float) -> Iterator[Row]:
    """Yield a row per bandwidth: the seconds of a step, and what `link_model` predicts them from.

    The steps take turns with steps that exchange nothing (`alone_in_turn_seconds`): a machine that has changed its
    speed since `alone_seconds` changes both.
    """
    local, batches = local_copy(model, "sparse_categorical_crossentropy"), wire.batches(job, train, batch_size)
    known = {"batch_size": batch_size, "gradient_bytes": throughput.gradient_bytes(model), "nodes": job.layout.nodes,
             **_alone(local, batches, seconds)}
    for bandwidth in bandwidths:
        set_bandwidth(bandwidth)
        (alone, *_), (step, low, high) = _timed([local, model], batches, seconds)
        job.print_once(f"{known['gradient_bytes'] / 1e6:.1f} MB, batch {batch_size}, {bandwidth}: {1e3 * step:.0f} ms "
                       f"a step, {1e3 * alone:.0f} ms without the exchange")
        yield known | {"bandwidth": bandwidth, "step_seconds": step, "step_seconds_low": low,
                       "step_seconds_high": high, "alone_in_turn_seconds": alone}


def _alone(local: tf.keras.Model, batches: Iterator, seconds: float) -> Row:
    """Return the seconds of a step that exchanges nothing, and until its largest gradient and all are computed."""
    ((step, _, _),) = _timed([local], batches, seconds)
    # TensorFlow orders the operations that could run next. About one graph in 20 reads the clock of the largest
    # gradient only after the whole backward pass: that belongs to the clock, not to the network.
    graphs = [_moments(local) for _ in range(CALLS)]
    shares = [[moments(*next(batches)) for _ in range(STEPS[0] + 2)][2:] for moments in graphs]
    # Horovod: all workers compute the same network, so their clocks' median is its moment.
    largest, every = np.median(hvd_ops.gather_object(np.array(shares, float)), axis=(0, 1, 2))
    return {"alone_seconds": step, "ready_seconds": float(largest * step), "computed_seconds": float(every * step)}


def _moments(model: tf.keras.Model) -> Callable:
    """Return a training step that returns two shares of its time: until the largest gradient, and all, are computed."""
    variables = [tf_variable(weight) for weight in model.trainable_weights]
    largest = max(range(len(variables)), key=lambda index: variables[index].shape.num_elements())

    @tf.function(autograph=False)
    def step(images, labels, weights):
        began = tf.timestamp()
        with tf.control_dependencies([began]):
            images = tf.identity(images)
        with tf.GradientTape() as tape:
            outputs = model(images, training=True)
            loss = tf.reduce_mean(weights * tf.keras.losses.sparse_categorical_crossentropy(labels, outputs))
        gradients = tape.gradient(loss, variables)
        with tf.control_dependencies([gradients[largest]]):
            largest_ready = tf.timestamp()
        with tf.control_dependencies(gradients):
            all_ready = tf.timestamp()
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        with tf.control_dependencies([*gradients, *(variable.read_value() for variable in variables)]):
            ended = tf.timestamp()
        return (largest_ready - began) / (ended - began), (all_ready - began) / (ended - began)

    return step


def timed(steps: Sequence[Callable[[], Any]], seconds: float) -> list[tuple[float, float, float]]:
    """Return the median seconds of each step on the slowest worker, with its 95 % interval; the steps take turns."""
    times = collectives.time_in_turns(dict(enumerate(steps)), seconds * len(steps), STEPS, warmup=2)
    return [(float(np.median(each)), *collectives.median_interval(each)) for each in times.values()]


def _timed(models: Sequence[tf.keras.Model], batches: Iterator, seconds: float) -> list[tuple[float, ...]]:
    """Return what timed() returns, for a training step of each model on endless batches."""
    # The first of two has no step before it whose end could overlap.
    pairs = timed([functools.partial(take_steps, model, batches, 2) for model in models], seconds)
    return [tuple(value / 2 for value in pair) for pair in pairs]
