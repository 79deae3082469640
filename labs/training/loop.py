"""The training loop: `fit` and `evaluate`, one code path for one worker and for many."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tqdm import tqdm

from labs.datasets.pipeline import Augment, eval_batches, train_batches
from labs.datasets.sharding import coverage, refuse_large_batch, refuse_unequal, shard, steps_per_epoch
from labs.datasets.splits import Subset
from labs.run import heartbeat, terminal, worker
from labs.run.errors import LabError
from labs.training import agreement, checkpoint, hvd_ops, keras_internals, layout
from labs.training.workers import Job

NOT_FINITE = "the loss is not finite"
PRINTED = ("loss", "accuracy", "mae", "psnr")
BETWEEN_CALLBACKS = 0.2
"""Seconds between two checks of signals, progress bar and heartbeat. If a step is shorter, a call takes several."""
MOST_STEPS = 64


def fit(
    job: Job, model: tf.keras.Model, optimizer: tf.keras.optimizers.Optimizer, train: Subset,
    validation: Subset | None = None, *,
    loss: str = "sparse_categorical_crossentropy", metrics: Sequence[str | Callable] = ("accuracy",),
    batch_size: int, epochs: int, augment: Augment | None = None,
    fp16_allreduce: bool = False, backward_passes_per_step: int = 1,
    stop_when: Callable[[dict[str, float]], bool | None] | None = None,
) -> list[dict[str, float]]:
    """Train on all workers, and return the history: one row per epoch, equal on all of them.

    With `job.options.resume`, an interrupted run continues from its last checkpoint and ends with the same weights.

    Args:
        model: Built, not compiled.
        optimizer: Not built; its learning rate is already scaled to `job.size`.
        train: The training images; each is used once per epoch, by one worker.
        validation: The images that are evaluated after each epoch, each by one worker.
        loss: Name of a Keras loss.
        metrics: Names of Keras metrics, or functions of labels and outputs.
        batch_size: Images per worker and step.
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
    refuse_large_batch(batch_size * job.size, len(train))
    # Horovod: wrap the optimizer; every step now applies the mean gradient of all workers.
    optimizer = hvd_ops.distributed_optimizer(
        optimizer, fp16_allreduce=fp16_allreduce, backward_passes_per_step=backward_passes_per_step,
        device=job.layout.exchange_device,
    )
    compile_for(model, optimizer, loss, metrics)
    identity = agreement.identity(job.size, train=train, validation=validation)
    saver = checkpoint.Saver(job, model, _begin(job, model, identity), identity)
    job.data.update(identity["data"])
    mine = shard(train.positions, batch_size, job.rank, job.size, saver.position.epoch, job.seed)
    # Horovod: the workers' actual shards show whether each image is used once per epoch.
    job.print_once(coverage(hvd_ops.gather_object(mine), train.positions))
    heartbeat.current().plan(epochs, steps_per_epoch(len(train), batch_size, job.size))
    with worker.defer_signal():
        while saver.position.epoch < epochs:
            row = _train_epoch(job, model, train, saver, batch_size, backward_passes_per_step, augment)
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
    """Compile a built model as `fit` trains it: with sample weights, several steps per call, and a built optimizer.

    The optimizer is wrapped by `hvd_ops.distributed_optimizer`, unless this worker trains by itself. The first step in
    which the loss is NaN or infinite ends the training.
    """
    loss_of_keras = tf.keras.losses.get(loss)

    def finite(y_true, y_pred):
        return tf.debugging.check_numerics(loss_of_keras(y_true, y_pred), NOT_FINITE)

    optimizer.build(model.trainable_variables)
    keras_internals.compile_for_steps(model, optimizer, finite, metrics)


def local_copy(model: tf.keras.Model, loss: str, metrics: Sequence[str] = ()) -> tf.keras.Model:
    """Return a copy of a model, which `fit` has trained, that exchanges no gradients; for measurements."""
    # A model of the same layers is not compiled: Keras 3 would compile the copy as well, with Horovod's optimizer.
    copy = tf.keras.models.clone_model(tf.keras.Model(model.inputs, model.outputs))
    compile_for(copy, type(model.optimizer).from_config(model.optimizer.get_config()), loss, metrics)
    return copy


class Steps(tf.keras.callbacks.Callback):
    """Follows the steps of one epoch: heartbeat, progress bar, checkpoints.

    Keras returns to Python after each call of its train function. For small models that return costs more than a step.
    So the first few steps are timed one by one, and then their number is set so that Keras returns about every
    BETWEEN_CALLBACKS seconds. This changes no result.

    Args:
        epoch: Number of the epoch, from 1.
        first: Steps of the epoch that were taken before, by the run that this one resumes.
        micro_batches: Passes of the model that make one step; Keras calls each of them a step.
        saver: Saves the run between two steps, and may end the epoch there.
        bar: Whether to show a progress bar, if there is a terminal.
    """

    def __init__(self, epoch: int, steps: int, first: int, micro_batches: int = 1,
                 saver: checkpoint.Saver | None = None, bar: bool = False):
        super().__init__()
        self.epoch, self.steps, self.first, self.micro_batches, self.saver = epoch, steps, first, micro_batches, saver
        self.stopped, self.pace, self.is_paced = False, 1, steps - first <= 8
        self.columns = bar and terminal.columns()
        self.step, self.began = first, time.perf_counter()
        self.call_began = self.began

    def on_train_begin(self, logs=None):
        self.model.train_function.taken = 0
        self._plan_call()

    def on_epoch_begin(self, epoch, logs=None):
        if self.saver:  # Keras has reset all metrics.
            self.saver.restore_worker_state()

    def on_train_batch_end(self, batch, logs=None):
        before, self.step = self.step, self.first + self.model.train_function.taken // self.micro_batches
        heartbeat.current().step(self.epoch, self.step, hvd_ops.seconds_waited(self.model.optimizer))
        self._show(logs["loss"])
        if not self.is_paced and self.step - self.first >= 3:
            self._set_pace(self.step - before)
        # On all workers after the same steps: they decide together.
        self.stopped = self.saver is not None and self.step < self.steps and self.saver.after_step(self.step)
        if self.stopped or self.step == self.steps:
            self.model.stop_training = True
        else:
            self._plan_call()

    def _set_pace(self, taken: int) -> None:
        pace = max(1, min(MOST_STEPS, int(BETWEEN_CALLBACKS * taken / (time.perf_counter() - self.call_began))))
        # Horovod: workers that return after different steps would wait for each other forever.
        self.pace = int(hvd_ops.gather([pace], "asked").min())
        self.is_paced = True

    def _plan_call(self) -> None:
        """Set the steps of the next call: no more than the epoch has left."""
        self.model.train_function.steps = self.micro_batches * min(self.pace, self.steps - self.step)
        self.call_began = time.perf_counter()

    def _show(self, loss: float) -> None:
        if self.columns:
            terminal.show_progress(tqdm.format_meter(
                self.step, self.steps, time.perf_counter() - self.began, self.columns - 1, f"epoch {self.epoch}",
                unit="step", postfix=f"loss {loss:.4f}", initial=self.first))

    def on_train_end(self, logs=None):
        terminal.show_progress("")


def _begin(job: Job, model: tf.keras.Model, identity: Mapping[str, Any]) -> checkpoint.Position:
    """Give all workers the same state, the initial one or the last checkpoint's, and return its position."""
    def restore() -> checkpoint.Position:
        folder = job.folder / "checkpoints"
        return checkpoint.restore(folder, model, job.config, identity) if job.options.resume else checkpoint.Position()

    # Horovod: only rank 0 reads the checkpoint.
    position = hvd_ops.call_on_rank_0(restore)
    # Horovod: all workers begin with rank 0's weights and optimizer state.
    hvd_ops.broadcast_state(model)
    agreement.check_same_on_all_workers(config=dataclasses.asdict(job.config), versions=layout.versions(), **identity,
                                        model=list(agreement.checksums(model)))
    agreement.compare_weights(model, "before step 1")
    if job.options.resume:
        job.print_once(f"resumed after {position}" if position.epoch or position.step else
                       "nothing to resume: starting from the beginning")
    return position


def _train_epoch(job: Job, model: tf.keras.Model, train: Subset, saver: checkpoint.Saver, batch_size: int,
                 micro_batches: int, augment: Augment | None) -> dict[str, float]:
    """Train for one epoch, or the rest of it, and return its row of the history."""
    epoch, first, steps = saver.position.epoch, saver.position.step, steps_per_epoch(len(train), batch_size, job.size)
    # Horovod: does not shard data. All workers use one order, new in each epoch; each takes its own shard of it.
    mine = shard(train.positions, batch_size, job.rank, job.size, epoch, job.seed).into_micro_batches(micro_batches)
    batches = train_batches(train.images, train.labels, mine, augment, epoch=epoch, seed=job.seed,
                            first_step=first * micro_batches)
    keras_internals.seed_dropout(model, job.seed, epoch, job.rank)
    callback = Steps(epoch + 1, steps, first, micro_batches, saver, bar=job.rank == 0)
    saver.begin_epoch()
    logs = _fit_of_keras(model, batches, (steps - first) * micro_batches, callback)
    seconds = saver.seconds
    if callback.stopped:
        saver.stop()
    if callback.step < steps:
        raise LabError(f"took {callback.step} of the {steps} steps of epoch {epoch + 1}; the data ran out")
    # Horovod: each worker has the mean over its own images; the history holds the mean over all workers. Times are
    # averaged too: workers decide by them, and must decide alike.
    means = hvd_ops.mean_over_workers(logs | {"train_seconds": seconds}, float(mine.weights.sum()))
    seconds = means.pop("train_seconds")
    return {"epoch": epoch + 1, **means, "learning_rate": float(model.optimizer.learning_rate),
            "images": len(train), "steps": steps, "train_seconds": seconds}


def _fit_of_keras(model: tf.keras.Model, batches: tf.data.Dataset, passes: int, callback: Steps) -> dict[str, float]:
    """Call `Model.fit` for an epoch and return its logs; raise LabError if the loss is not finite."""
    try:
        history = model.fit(batches, steps_per_epoch=passes, callbacks=[callback], shuffle=False, verbose=0).history
    except tf.errors.OpError as error:
        if NOT_FINITE not in str(error):
            raise
        step = int(model.optimizer.iterations) - (callback.epoch - 1) * callback.steps + 1
        raise LabError(f"{NOT_FINITE} at epoch {callback.epoch}, step {step}, learning rate "
                       f"{float(model.optimizer.learning_rate):.4g}; lower --base-lr or lengthen the warmup") from None
    return {name: values[0] for name, values in history.items()}


def _validate(job: Job, model: tf.keras.Model, validation: Subset | None, batch_size: int) -> dict[str, float]:
    """Return what an epoch's validation adds to its row of the history."""
    began = time.perf_counter()
    if validation is None or not len(validation):
        return {}
    values = _evaluate(job, model, validation, batch_size)
    took = hvd_ops.mean_over_workers({"val_seconds": time.perf_counter() - began}, 1.0)
    return {f"val_{name}": value for name, value in values.items()} | took


def evaluate(job: Job, model: tf.keras.Model, subset: Subset, batch_size: int) -> dict[str, float]:
    """Return loss and metrics over all images of a subset; each image is evaluated by one worker."""
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
        alive = tf.keras.callbacks.LambdaCallback(on_test_batch_end=lambda *_, **__: heartbeat.current().still_moving())
        means = model.evaluate(batches, verbose=0, return_dict=True, callbacks=[alive])
    # Horovod: shards differ in size by at most one image; weight each mean by its shard's size.
    return hvd_ops.mean_over_workers(means, len(mine))


def epoch_line(row: dict[str, float], epochs: int) -> str:
    """Return an epoch's row of the history as a line."""
    figures = [f"{name} {row[name]:.4f}" for name in row if name.removeprefix("val_") in PRINTED]
    speed = f"{row['images'] / row['train_seconds']:.0f} images/s", f"{row['train_seconds']:.1f} s"
    return "  ".join([f"epoch {row['epoch']}/{epochs}", *figures, *speed])
