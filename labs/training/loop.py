"""`fit` and `evaluate`: one code path for one worker and for many."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from labs.datasets.pipeline import Augment, eval_batches, lab_error, train_batches
from labs.datasets.sharding import coverage, shard, steps_per_epoch
from labs.datasets.splits import Subset
from labs.run import heartbeat, stop
from labs.run.errors import LabError
from labs.run.text import plural
from labs.training import checkpoint, hvd_ops, precheck, tensorboard, workers
from labs.training.callbacks import EvaluationSteps, Steps, shows_bar
from labs.training.saver import Saver
from labs.training.workers import Job

NOT_FINITE = "the loss is not finite"


@tf.keras.utils.register_keras_serializable("labs")
class Finite(tf.keras.losses.Loss):
    """A loss that stops at the very step at which it is no longer a number.

    Args:
        inner: Name of a Keras loss, such as "sparse_categorical_crossentropy".
    """

    def __init__(self, inner: str, name: str = "loss", **rest):
        super().__init__(name=name, **rest)
        self.inner = inner

    def call(self, y_true, y_pred):
        return tf.debugging.check_numerics(tf.keras.losses.get(self.inner)(y_true, y_pred), NOT_FINITE)

    def get_config(self):
        return super().get_config() | {"inner": self.inner}


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

    An interrupted run goes on from its last checkpoint when `job.options.resume` is set, and comes to the same end.

    Args:
        job: The run, from `workers.start`.
        model: Built, not compiled.
        optimizer: With a learning rate that is already scaled to `job.size`.
        train: Images that are trained on: each by one worker, once per epoch.
        validation: Images that are looked at after each epoch, each by one worker.
        loss: Name of a Keras loss.
        metrics: Names of Keras metrics, or functions of labels and outputs.
        batch_size: Images per worker and step.
        epochs: Passes over the training images.
        augment: How to vary the training images.
        fp16_allreduce: Send gradients in half precision.
        backward_passes_per_step: Pieces into which each batch is cut; their gradients are averaged on the worker, and
            exchanged once: the same step, with the memory of a piece.
        stop_when: Called after each epoch, on all workers, with its row; True ends the training.

    Raises:
        LabError: The workers do not agree, or drift apart, or the loss is not finite, or the pieces are unequal.
        Stopped: The run was asked to stop, and has saved where it is.
    """
    if batch_size % backward_passes_per_step:
        raise LabError(f"a batch of {batch_size} cannot be cut into {backward_passes_per_step} equal pieces; "
                       "choose another --batch-size")
    precheck.refuse_too_large(model, batch_size // backward_passes_per_step)
    steps = steps_per_epoch(len(train), batch_size, job.size)
    # Horovod: wrap the optimizer; every step now applies the mean gradient of all workers.
    optimizer = hvd_ops.distributed_optimizer(
        optimizer, fp16_allreduce=fp16_allreduce, backward_passes_per_step=backward_passes_per_step
    )
    compile_for(model, optimizer, loss, metrics)
    position = _begin(job, model, train, validation)
    job.say(_coverage(job, train, batch_size, position.epoch))
    saver = Saver(job, model, position)
    board = tensorboard.begin(job, model, position.history)
    with stop.defer_signal():
        while saver.position.epoch < epochs:
            row = _train_epoch(job, model, train, saver, steps, batch_size, backward_passes_per_step, augment)
            # Horovod: from here to the end of the epoch all workers must hold and evaluate the same model.
            hvd_ops.average_statistics(model)
            workers.compare_weights(model, f"after epoch {row['epoch']}")
            row |= _validate(job, model, validation, batch_size)
            saver.end_epoch(row)
            if board:
                board.add(row)
            job.say(_line(row, epochs))
            if stop_when and stop_when(row):
                break
            saver.stop_if_asked()
    heartbeat.current().pause()
    return list(saver.position.history)


def compile_for(model: tf.keras.Model, optimizer: tf.keras.optimizers.Optimizer, loss: str,
                metrics: Sequence[str | Callable]) -> None:
    """Compile a model as `fit` trains it: samples weighted, several steps per call, the optimizer's variables made."""
    optimizer.build(model.trainable_variables)
    model.compile(optimizer, Finite(loss), weighted_metrics=list(metrics), jit_compile=False, steps_per_execution=2)
    # Keras would trace a step four times: twice because its metrics come into being the first time, and each time once
    # more for the loop around it. With the metrics made here, and traced once as a function, it is half the wait.
    outputs = tf.zeros([1, *model.output_shape[1:]])
    model.compiled_loss.build(outputs)
    model.compiled_metrics.build(outputs, tf.zeros([1]))
    model.train_step = tf.function(functools.partial(type(model).train_step, model), autograph=False)
    model.make_train_function()  # Now, while steps_per_execution is not 1: Keras compiles another function for 1.


def local_copy(model: tf.keras.Model, loss: str, metrics: Sequence[str] = ()) -> tf.keras.Model:
    """Return another model of the same layers and optimizer whose gradients stay on this worker: for measurements.

    Args:
        model: Trained by `fit`.
        loss: Name of a Keras loss.
        metrics: Names of Keras metrics.
    """
    copy = tf.keras.models.clone_model(model)
    compile_for(copy, hvd_ops.undistributed(model.optimizer), loss, metrics)
    return copy


def take_steps(model: tf.keras.Model, batches: Iterator, count: int) -> None:
    """Take so many training steps in one call, and return when they are done.

    Args:
        model: Compiled by `compile_for`.
        batches: Of images, labels and weights.
        count: At least 1.
    """
    model._steps_per_execution.assign(count)
    float(model.train_function(batches)["loss"])  # On a GPU the steps are done when their result is here.


def _begin(job: Job, model: tf.keras.Model, train: Subset, validation: Subset | None) -> checkpoint.Position:
    """Bring all workers to one point: the beginning, or the last checkpoint."""
    position, problem = checkpoint.Position(), None
    if job.options.resume and job.rank == 0:
        try:
            position = checkpoint.restore(job.folder / "checkpoints", model, job.config)
        except LabError as error:
            problem = str(error)
    # Horovod: rank 0 alone has read the checkpoint.
    position, problem = hvd_ops.broadcast_object((position, problem))
    if position.own and len(position.own) != job.size:
        problem = (f"it was saved between two steps of {plural(len(position.own), 'worker')}, and here are {job.size}; "
                   f"resume it with --workers {len(position.own)}")
    if problem:
        raise LabError(problem)
    # Horovod: all workers begin with rank 0's weights and optimizer state.
    hvd_ops.broadcast_state(model)
    workers.agree(
        config=dataclasses.asdict(job.config),
        data={"train": train.digest(), "validation": validation.digest() if validation else None},
        versions=workers.versions(),
        model=list(workers.checksums(model)),
    )
    workers.compare_weights(model, "before step 1")
    if position.epoch or position.step:
        job.say(f"resumed after epoch {position.epoch}" + f", step {position.step}" * (position.step > 0))
    elif job.options.resume:
        job.say("nothing to resume: starting from the beginning")
    return position


def _coverage(job: Job, train: Subset, batch_size: int, epoch: int) -> str:
    """Prove, from what the workers really hold, that together they see every image once."""
    mine = shard(train.positions, batch_size, job.rank, job.size, epoch, job.seed)
    return coverage(hvd_ops.gather_object(mine), train.positions)


def _train_epoch(job, model, train, saver, steps, batch_size, pieces, augment) -> dict[str, float]:
    """Train for one epoch, or for what is left of it, and return its row of the history."""
    epoch, first, seed = saver.position.epoch, saver.position.step, job.seed
    # Horovod: shards nothing by itself. One order for all workers, new in each epoch; each takes its own part.
    mine = shard(train.positions, batch_size, job.rank, job.size, epoch, seed).cut(pieces)
    passes = (steps - first) * pieces
    _seed_dropout(model, seed, epoch, job.rank)
    followed = Steps(heartbeat.current(), epoch + 1, steps, pieces, shows_bar(job.rank), first=first,
                     begin=saver.take_up, between=saver.between)
    saver.begin_epoch()
    try:
        logs = model.fit(
            train_batches(train.images, train.labels, mine, augment, epoch=epoch, seed=seed, first_step=first * pieces),
            steps_per_epoch=passes, callbacks=[followed], verbose=0,
        ).history
    except tf.errors.OpError as error:
        raise _explained(error, model, epoch, steps) from None
    seconds = saver.seconds
    if followed.stopped:
        saver.stop()
    if int(model._train_counter) != passes:
        raise LabError(f"took {int(model._train_counter)} of the {passes} passes left of epoch {epoch + 1}; "
                       "the data ran out")
    # Horovod: each worker has the mean over its own images; the history holds the mean over all workers. Times are
    # averaged too, because every worker must take the same decision from them.
    means = hvd_ops.mean_over_workers({name: values[0] for name, values in logs.items()}, float(mine.weights.sum()))
    return {"epoch": epoch + 1, **means, "learning_rate": _learning_rate(model), "images": len(train),
            "steps": steps, "train_seconds": hvd_ops.mean_over_workers({"seconds": seconds}, 1.0)["seconds"]}


def _validate(job, model, validation, batch_size) -> dict[str, float]:
    began = time.perf_counter()
    if validation is None or not len(validation):
        return {}
    values = _evaluate(job, model, validation, batch_size)
    took = hvd_ops.mean_over_workers({"val_seconds": time.perf_counter() - began}, 1.0)
    return {f"val_{name}": value for name, value in values.items()} | took


def evaluate(job: Job, model: tf.keras.Model, part: Subset, batch_size: int) -> dict[str, float]:
    """Return loss and metrics over all images of a part, each seen by one worker.

    Args:
        job: The run.
        model: Compiled by `fit`.
        part: The images.
        batch_size: Images per worker and step.
    """
    means = _evaluate(job, model, part, batch_size)
    heartbeat.current().pause()  # What follows, such as drawing curves on rank 0 alone, takes no steps.
    return means


def _evaluate(job: Job, model: tf.keras.Model, part: Subset, batch_size: int) -> dict[str, float]:
    """Evaluate, and leave the watch as it is: between two epochs of a training it must not rest."""
    mine = part.positions[job.rank :: job.size]
    means = dict.fromkeys(model.metrics_names, 0.0)
    if len(mine):
        batches = eval_batches(part.images, part.labels, mine, batch_size)
        model._steps_per_execution.assign(1)
        means = model.evaluate(batches, verbose=0, return_dict=True, callbacks=[EvaluationSteps(heartbeat.current())])
    # Horovod: shards differ in size by at most one image; weight each mean by its shard's size.
    return hvd_ops.mean_over_workers(means, len(mine))


def _seed_dropout(model: tf.keras.Model, seed: int, epoch: int, rank: int) -> None:
    """Draw other masks in every epoch and on every worker, and the same again when the epoch is run again."""
    for place, layer in enumerate(checkpoint.random_layers(model)):
        draw = np.random.SeedSequence([seed, epoch, rank, place]).generate_state(1)[0]
        layer._random_generator._generator.reset_from_seed(int(draw))


def _learning_rate(model: tf.keras.Model) -> float:
    rate = model.optimizer._learning_rate
    return float(rate(model.optimizer.iterations) if callable(rate) else rate)


def _explained(error: tf.errors.OpError, model: tf.keras.Model, epoch: int, steps: int) -> Exception:
    """Turn TensorFlow's many lines into one, where the cause is known."""
    if NOT_FINITE in str(error):
        step = int(model.optimizer.iterations) - epoch * steps + 1
        return LabError(f"{NOT_FINITE} at epoch {epoch + 1}, step {step}, learning rate {_learning_rate(model):.4g}; "
                        "lower --base-lr or lengthen the warmup")
    return lab_error(error) or error


def _line(row: dict[str, float], epochs: int) -> str:
    told = ("loss", "accuracy", "mae", "psnr")
    shown = [f"{name} {row[name]:.4f}" for name in row if name.removeprefix("val_") in told]
    rate = row["images"] / row["train_seconds"]
    return f"epoch {row['epoch']}/{epochs}  {'  '.join(shown)}  {rate:.0f} images/s  {row['train_seconds']:.1f} s"
