"""The training loop: `fit` and `evaluate`, one code path for one worker and for many."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import psutil
import tensorflow as tf

from labs.datasets.pipeline import Augment, eval_batches, lab_error, train_batches
from labs.datasets.sharding import coverage, refuse_large_batch, refuse_unequal, shard, steps_per_epoch
from labs.datasets.splits import Subset
from labs.run import heartbeat, worker
from labs.run.errors import LabError
from labs.training import agreement, checkpoint, hvd_ops, keras_internals, layout
from labs.training.callbacks import EvaluationSteps, Steps
from labs.training.workers import Job

NOT_FINITE = "the loss is not finite"


def finite(name: str) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """Return the Keras loss of this name; it raises in the first step in which it is NaN or infinite."""
    inner = tf.keras.losses.get(name)

    def loss(y_true, y_pred):
        return tf.debugging.check_numerics(inner(y_true, y_pred), NOT_FINITE)

    return loss


def fit(
    job: Job,
    model: tf.keras.Model,
    optimizer: tf.keras.optimizers.Optimizer,
    train: Subset,
    validation: Subset | None = None,
    *,
    loss: str = "sparse_categorical_crossentropy",
    metrics: Sequence[str | Callable] = ("accuracy",),
    batch_size: int,
    epochs: int,
    augment: Augment | None = None,
    fp16_allreduce: bool = False,
    backward_passes_per_step: int = 1,
    stop_when: Callable[[dict[str, float]], bool | None] | None = None,
) -> list[dict[str, float]]:
    """Train on all workers, and return the history: one row per epoch, equal on all of them.

    With `job.options.resume`, an interrupted run continues from its last checkpoint and ends with the same weights.

    Args:
        job: The run, from `workers.start`.
        model: Built, not compiled.
        optimizer: Not built; its learning rate is already scaled to `job.size`.
        train: The training images; each is used once per epoch, by one worker.
        validation: The images that are evaluated after each epoch, each by one worker.
        loss: Name of a Keras loss.
        metrics: Names of Keras metrics, or functions of labels and outputs.
        batch_size: Images per worker and step.
        epochs: Passes over the training images.
        augment: How to augment the training images.
        fp16_allreduce: Send gradients in half precision.
        backward_passes_per_step: Micro-batches into which each batch is split. Their gradients are averaged on the
            worker and exchanged once: the same step, with the memory of one micro-batch.
        stop_when: Called after each epoch, on all workers, with the epoch's row; True ends the training.

    Raises:
        LabError: The workers do not agree, or drift apart, or the loss is not finite, or the micro-batches would be of
            unequal size.
        Stopped: The run was asked to stop, and has saved its state.
    """
    refuse_unequal(batch_size, backward_passes_per_step)
    refuse_too_large(model, batch_size // backward_passes_per_step)
    refuse_large_batch(batch_size * job.size, len(train))
    steps = steps_per_epoch(len(train), batch_size, job.size)
    # Horovod: wrap the optimizer; every step now applies the mean gradient of all workers.
    optimizer = hvd_ops.distributed_optimizer(
        optimizer, fp16_allreduce=fp16_allreduce, backward_passes_per_step=backward_passes_per_step,
        device=job.layout.exchange_device,
    )
    compile_for(model, optimizer, loss, metrics)
    identity = agreement.identity(job.size, train=train, validation=validation)
    position = _begin(job, model, identity)
    job.data.update(identity["data"])
    job.print_once(_coverage(job, train, batch_size, position.epoch))
    saver = checkpoint.Saver(job, model, position, identity)
    heartbeat.current().plan(epochs, steps)
    with worker.defer_signal():
        while saver.position.epoch < epochs:
            row = _train_epoch(job, model, train, saver, steps, batch_size, backward_passes_per_step, augment)
            # Horovod: from here to the end of the epoch all workers must hold and evaluate the same model.
            hvd_ops.average_statistics(model)
            agreement.compare_weights(model, f"after epoch {row['epoch']}")
            row |= _validate(job, model, validation, batch_size)
            saver.end_epoch(row)
            job.print_once(epoch_line(row, epochs))
            if stop_when and stop_when(row):
                break
            saver.stop_if_requested()
    heartbeat.current().pause()
    return list(saver.position.history)


def compile_for(model: tf.keras.Model, optimizer: tf.keras.optimizers.Optimizer, loss: str,
                metrics: Sequence[str | Callable]) -> None:
    """Compile a model as `fit` trains it: with sample weights, several steps per call, and a built optimizer.

    Args:
        model: Built.
        optimizer: Wrapped by `hvd_ops.distributed_optimizer`, unless this worker trains by itself.
        metrics: Names of Keras metrics, or functions of labels and outputs.
    """
    optimizer.build(model.trainable_variables)
    keras_internals.compile_for_steps(model, optimizer, finite(loss), metrics)


def refuse_too_large(model: tf.keras.Model, batch_size: int) -> None:
    """Raise for a batch whose largest activation alone exceeds this machine's memory.

    TensorFlow would end with a segmentation fault (oneDNN does not check its allocations) or with pages of output. On a
    GPU TensorFlow's own error names the cause, and nothing is checked here.

    Args:
        model: Built.
        batch_size: Images that pass through the model at once.

    Raises:
        LabError: The batch is too large; the message names the memory needed and the memory available.
    """
    largest = 0  # Bytes per image of the largest output of a layer.
    for layer in model.layers:
        with contextlib.suppress(AttributeError, RuntimeError):  # A nested layer may have no output here.
            for output in tf.nest.flatten(layer.output):
                if None not in output.shape[1:]:
                    largest = max(largest, math.prod(output.shape[1:]) * tf.as_dtype(output.dtype).size)
    total, needed = psutil.virtual_memory().total, batch_size * largest
    if needed > total and not tf.config.list_logical_devices("GPU"):
        raise LabError(f"out of memory: a batch of {batch_size} images needs more than {needed / 1e9:,.0f} GB, and "
                       f"this machine has {total / 1e9:,.0f}; lower --batch-size")


def local_copy(model: tf.keras.Model, loss: str, metrics: Sequence[str] = ()) -> tf.keras.Model:
    """Return a copy of a model that exchanges no gradients, for measurements.

    Args:
        model: Trained by `fit`.
    """
    # A model of the same layers is not compiled: Keras 3 would compile the copy as well, with Horovod's optimizer.
    copy = tf.keras.models.clone_model(tf.keras.Model(model.inputs, model.outputs))
    compile_for(copy, hvd_ops.undistributed(model.optimizer), loss, metrics)
    return copy


def _begin(job: Job, model: tf.keras.Model, identity: Mapping[str, Any]) -> checkpoint.Position:
    """Give all workers the same state: the initial one, or the last checkpoint's."""
    position, problem = checkpoint.Position(), None
    if job.options.resume and job.rank == 0:
        try:
            position = checkpoint.restore(job.folder / "checkpoints", model, job.config, identity)
        except LabError as error:
            problem = str(error)
    # Horovod: only rank 0 has read the checkpoint.
    position, problem = hvd_ops.broadcast_object((position, problem))
    if problem:
        raise LabError(problem)
    # Horovod: all workers begin with rank 0's weights and optimizer state.
    hvd_ops.broadcast_state(model)
    agreement.check_same_on_all_workers(
        config=dataclasses.asdict(job.config),
        versions=layout.versions(),
        **identity,
        model=list(agreement.checksums(model)),
    )
    agreement.compare_weights(model, "before step 1")
    if position.epoch or position.step:
        job.print_once(f"resumed after epoch {position.epoch}" + f", step {position.step}" * (position.step > 0))
    elif job.options.resume:
        job.print_once("nothing to resume: starting from the beginning")
    return position


def _coverage(job: Job, train: Subset, batch_size: int, epoch: int) -> str:
    """Verify from the workers' actual shards that each image is used once per epoch, and return a line on it."""
    mine = shard(train.positions, batch_size, job.rank, job.size, epoch, job.seed)
    return coverage(hvd_ops.gather_object(mine), train.positions)


def _train_epoch(job, model, train, saver, steps, batch_size, micro_batches, augment) -> dict[str, float]:
    """Train for one epoch, or the rest of it, and return its row of the history."""
    epoch, first, seed = saver.position.epoch, saver.position.step, job.seed
    # Horovod: does not shard data. All workers use one order, new in each epoch; each takes its own shard of it.
    mine = shard(train.positions, batch_size, job.rank, job.size, epoch, seed).into_micro_batches(micro_batches)
    passes = (steps - first) * micro_batches
    seed_dropout(model, seed, epoch, job.rank)
    callback = Steps(heartbeat.current(), epoch + 1, steps, micro_batches, job.rank == 0, first=first,
                     begin=saver.restore_worker_state, after_step=saver.after_step)
    saver.begin_epoch()
    try:
        logs = model.fit(
            train_batches(train.images, train.labels, mine, augment, epoch=epoch, seed=seed,
                          first_step=first * micro_batches),
            steps_per_epoch=passes, callbacks=[callback], shuffle=False, verbose=0,
        ).history
    except tf.errors.OpError as error:
        raise _explained(error, model, epoch, steps) from None
    seconds = saver.seconds
    if callback.stopped:
        saver.stop()
    if (taken := keras_internals.steps_taken(model)) != passes:
        raise LabError(f"took {taken} of the {passes} passes left of epoch {epoch + 1}; the data ran out")
    # Horovod: each worker has the mean over its own images; the history holds the mean over all workers. Times are
    # averaged too: workers decide by them, and must decide alike.
    means = hvd_ops.mean_over_workers({name: values[0] for name, values in logs.items()}, float(mine.weights.sum()))
    return {"epoch": epoch + 1, **means, "learning_rate": float(model.optimizer.learning_rate),
            "images": len(train), "steps": steps,
            "train_seconds": hvd_ops.mean_over_workers({"seconds": seconds}, 1.0)["seconds"]}


def _validate(job, model, validation, batch_size) -> dict[str, float]:
    began = time.perf_counter()
    if validation is None or not len(validation):
        return {}
    values = _evaluate(job, model, validation, batch_size)
    took = hvd_ops.mean_over_workers({"val_seconds": time.perf_counter() - began}, 1.0)
    return {f"val_{name}": value for name, value in values.items()} | took


def evaluate(job: Job, model: tf.keras.Model, subset: Subset, batch_size: int) -> dict[str, float]:
    """Return loss and metrics over all images of a subset; each image is evaluated by one worker.

    Args:
        model: Compiled by `fit`.
    """
    job.data.setdefault("test", agreement.digests(subset))
    means = _evaluate(job, model, subset, batch_size)
    heartbeat.current().pause()  # What follows takes no steps: rank 0 plots curves, for example.
    return means


def _evaluate(job: Job, model: tf.keras.Model, subset: Subset, batch_size: int) -> dict[str, float]:
    """Evaluate without pausing the stall check, which stays active between two epochs of a training."""
    mine = subset.positions[job.rank :: job.size]
    means = dict.fromkeys(model.get_metrics_result(), 0.0)
    if len(mine):
        batches = eval_batches(subset.images, subset.labels, mine, batch_size)
        keras_internals.set_steps_per_execution(model, 1)
        means = model.evaluate(batches, verbose=0, return_dict=True, callbacks=[EvaluationSteps(heartbeat.current())])
    # Horovod: shards differ in size by at most one image; weight each mean by its shard's size.
    return hvd_ops.mean_over_workers(means, len(mine))


def seed_dropout(model: tf.keras.Model, seed: int, epoch: int, rank: int) -> None:
    """Seed dropout, so that its masks differ between epochs and workers, and repeat when an epoch is repeated."""
    keras_internals.reseed_dropout(
        model, lambda layer: int(np.random.SeedSequence([seed, epoch, rank, layer]).generate_state(1)[0])
    )


def _explained(error: tf.errors.OpError, model: tf.keras.Model, epoch: int, steps: int) -> Exception:
    """Return TensorFlow's error as one line where the cause is known."""
    if NOT_FINITE in str(error):
        step = int(model.optimizer.iterations) - epoch * steps + 1
        learning_rate = float(model.optimizer.learning_rate)
        return LabError(f"{NOT_FINITE} at epoch {epoch + 1}, step {step}, learning rate {learning_rate:.4g}; "
                        "lower --base-lr or lengthen the warmup")
    return lab_error(error) or error


def epoch_line(row: dict[str, float], epochs: int) -> str:
    """Return an epoch's row of the history as a line."""
    printed = ("loss", "accuracy", "mae", "psnr")
    figures = [f"{name} {row[name]:.4f}" for name in row if name.removeprefix("val_") in printed]
    speed = f"{row['images'] / row['train_seconds']:.0f} images/s", f"{row['train_seconds']:.1f} s"
    return "  ".join([f"epoch {row['epoch']}/{epochs}", *figures, *speed])
