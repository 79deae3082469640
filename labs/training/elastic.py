"""Elastic training: survivors continue from the last commit when a worker is lost, and new workers join them.

`fit` ends the run when a worker dies, and the run is resumed from its last checkpoint. Here the surviving workers go on
from the last commit, a copy of weights and optimizer state in their memory; the run ends with its launcher.
"""

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable
from typing import Any

import horovod.tensorflow as hvd
import tensorflow as tf
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt

import horovod_keras3
from labs.datasets.pipeline import train_batches
from labs.datasets.sharding import coverage, shard
from labs.datasets.splits import Subset
from labs.run import fields, heartbeat, resources, terminal
from labs.run.errors import LabError, plural
from labs.run.fields import Options
from labs.run.run_lock import hold
from labs.training import agreement, elastic_hosts, hvd_ops, keras_internals, layout, schedule
from labs.training.loop import compile_for, epoch_line, evaluate
from labs.training.workers import Job


@dataclasses.dataclass
class Progress:
    """The state of a run that each worker keeps besides the weights; a new worker gets rank 0's.

    Times are those of the machine's monotonic clock: when the first worker's process began, when training last took a
    step, when the epoch began. Before training stopped it took `steps_lost` after the last commit, on `size` workers.
    """

    began: float
    stopped: float
    steps_lost: int = 0
    size: int = 0
    events: tuple[dict[str, Any], ...] = ()
    progress: tuple[dict[str, Any], ...] = ()
    history: tuple[dict[str, float], ...] = ()
    epoch_began: float = 0.0


class Elastic:
    """One worker of a run that can lose workers and gain new ones.

    After each step it calls `fault` with itself, which may kill workers, or let new ones start.
    """

    def __init__(self, config: Any, options: Options, fault: Callable[["Elastic"], None]):
        fields.check(config)
        if options.timeline:
            raise LabError("Horovod's timeline ends with the first reset; leave out --timeline, or add --study resume")
        if options.resume:  # As a job does that Slurm has put back into the queue.
            terminal.note("an elastic run has no checkpoint, so it starts from the beginning")
            options = dataclasses.replace(options, resume=False)
        if not options.name:
            raise LabError("workers that join later find the run by its name; add --name NAME, or use `labs run`")
        self.lab, self.config, self.options, self.fault = fields.lab_name(config), config, options, fault
        self._join()
        self.folder = options.results_root / self.lab / options.name
        began = time.monotonic() - resources.process_seconds()
        self.memory = Progress(began=began, stopped=began)
        self.at_end = contextlib.ExitStack()

    def _join(self) -> None:
        """Start Horovod and give this worker its GPU and threads, without communicating: others may be training."""
        started = int(os.environ.get("HOROVOD_SIZE", 1))
        elastic_hosts.listen_on_loopback()
        # Horovod: find the workers that wait for this one.
        hvd.init()
        if hvd.size() > 1 and os.environ.get("HOROVOD_ELASTIC") != "1":
            raise LabError("these workers were not started for elastic training: start them with `labs run`, "
                           "or add --study resume")
        # Horovod: sees the leaving worker alone on its host. That host is this machine, and the last GPU is its own.
        self.gpu = layout.pin_gpu(-1 if elastic_hosts.is_leaving() else hvd.local_rank(), 1)
        self.threads = layout.set_threads(0, started)
        tf.keras.utils.set_random_seed(self.config.seed)

    def train(self, model: tf.keras.Model, optimizer: tf.keras.optimizers.Optimizer, train: Subset,
              test: Subset) -> dict:
        """Train a built model even if other workers fail, and return loss and metrics over the test images."""
        self.model, self.images = model, train
        # Horovod: gradients are averaged over the workers that take part in the step.
        compile_for(model, hvd_ops.distributed_optimizer(optimizer), "sparse_categorical_crossentropy", ("accuracy",))
        self.data = agreement.identity(0, train=train, test=test)["data"]
        # Horovod: copies this state at a commit, restores it after a loss, and sends it to new workers.
        state = horovod_keras3.KerasState(model, epoch=0, seen=0, step=0)
        # Horovod: calls `_segment` again after each reset, with the state restored.
        return horovod_keras3.elastic.run(self._segment)(state, test)

    def close(self) -> None:
        """Stop the heartbeat and unlock the run's folder."""
        self.at_end.close()

    @property
    def done(self) -> float:
        """Epochs trained so far, including steps that are not committed yet."""
        return self.state.epoch + self.seen / len(self.images)

    def _segment(self, state: horovod_keras3.KerasState, test: Subset) -> dict[str, float]:
        """Train until the end, or until the set of workers changes."""
        self.state, self.seen, self.uncommitted = state, state.seen, 0
        self.in_step = self.running = False
        try:
            self._gather()
            while state.epoch < self.config.epochs:
                self._epoch()
            heartbeat.current().pause()
            return evaluate(self.job, self.model, test, self.config.batch_size)
        except (HorovodInternalError, HostsUpdatedInterrupt, tf.errors.OpError):
            self._stop()
            raise

    def _gather(self) -> None:
        """Give all present workers the same view of the run: layout, memory, learning rate."""
        now = layout.current_layout(self.gpu, self.threads)
        # Horovod: assigns new ranks at each reset; the workers that have been here longest come first.
        self.memory = hvd_ops.broadcast_object(self.memory)
        if now.rank == 0 and not hasattr(self, "job"):
            self.at_end.enter_context(hold(self.lab, self.options, 0, self.config))
        self.job = Job(self.lab, self.folder.name, self.folder, self.config, self.options, now, self.memory.began,
                       self.data)
        if heartbeat.current():
            heartbeat.current().close()
        self.at_end.callback(heartbeat.begin(self.folder / heartbeat.FOLDER, now.rank, self.options.stall_seconds,
                                             now.hosts[now.rank]).close)
        # Horovod: with fewer workers the global batch is smaller, and the learning rate follows it.
        scaled_lr = schedule.scaled_lr(self.config.base_lr, now.size, self.config.scaling)
        self.model.optimizer.learning_rate.assign(scaled_lr)
        self.job.print_once(f"{self.lab}: {now}, learning rate {scaled_lr:.4g}")

    def _epoch(self) -> None:
        state, config, job = self.state, self.config, self.job
        order = shard(self.images.positions, 1, 0, 1, state.epoch, config.seed).rows[:, 0]
        # Horovod: does not shard data. The images that are not used yet are divided among the present workers.
        first, left = state.seen, order[state.seen :]
        mine = shard(left, config.batch_size, job.rank, job.size, state.epoch, config.seed, shuffle=False)
        line = coverage(hvd_ops.gather_object(mine), left)
        if not self.running:
            job.print_once(line)
        keras_internals.seed_dropout(self.model, config.seed, state.epoch, job.rank)
        self.model.reset_metrics()
        batches = iter(train_batches(self.images.images, self.images.labels, mine, epoch=state.epoch, seed=config.seed))
        self.memory.epoch_began = self.memory.epoch_began or time.monotonic()
        for step in range(mine.steps):
            self.in_step = True
            keras_internals.take_steps(self.model, batches, 1)
            self.in_step = False
            self.uncommitted += 1
            self.seen = min(first + (step + 1) * config.batch_size * job.size, len(order))
            self._after_step()
            if self.uncommitted == config.commit_steps and self.seen < len(order):
                self._commit()
        self._finish_epoch(float(mine.weights.sum()))

    def _after_step(self) -> None:
        """Record that training continues and, after a reset, what the reset cost."""
        memory, now = self.memory, time.monotonic()
        heartbeat.current().step(self.state.epoch + 1, self.state.step + self.uncommitted)
        if not self.running:
            change = "lost" if self.job.size < memory.size else "joined"
            kind = f"worker {change}" if memory.size else "start"
            event = {"kind": kind, "seconds": now - memory.began, "size": self.job.size, "step": self.state.step,
                     "steps_lost": memory.steps_lost, "seconds_lost": now - memory.stopped}
            memory.events += (event,)
            self._note_progress(memory.stopped, self.state.seen)
            self._note_progress(now, self.seen)
            self.job.print_once(f"{kind}: size {event['size']} from step {event['step']} on, "
                                f"{plural(event['steps_lost'], 'step')} and {event['seconds_lost']:.1f} s lost")
        self.running, memory.stopped = True, now
        self.fault(self)

    def _commit(self) -> None:
        """Copy weights, optimizer and position in the data to memory; then check whether workers join or leave."""
        self.state.seen, self.state.step = self.seen, self.state.step + self.uncommitted
        self.state.save()
        self.uncommitted = 0
        self._note_progress(time.monotonic(), self.seen)
        # Horovod: all workers learn it from rank 0 in the same step, so nothing is lost.
        self.state.check_host_updates()

    def _finish_epoch(self, weight: float) -> None:
        memory, state = self.memory, self.state
        agreement.compare_weights(self.model, f"after epoch {state.epoch + 1}")
        means = hvd_ops.mean_over_workers(
            {name: float(value) for name, value in self.model.get_metrics_result().items()}, weight)
        now = time.monotonic()
        row = {"epoch": state.epoch + 1, **means,
               "learning_rate": float(self.model.optimizer.learning_rate), "images": len(self.images),
               "steps": state.step + self.uncommitted - sum(row["steps"] for row in memory.history),
               "train_seconds": now - memory.epoch_began, "size": self.job.size}
        memory.history += (row,)
        memory.epoch_began = now
        state.epoch, self.seen = state.epoch + 1, 0
        self.job.print_once(epoch_line(row, self.config.epochs))
        self._commit()

    def _note_progress(self, when: float, seen: int) -> None:
        """Add a row to the record's table `progress`: how far the run had come at a time."""
        row = {"seconds": when - self.memory.began, "epochs": self.state.epoch + seen / len(self.images)}
        self.memory.progress += (row | {"size": self.job.size},)

    def _stop(self) -> None:
        if heartbeat.current():
            heartbeat.current().pause()
        memory = self.memory
        if self.running:  # How far it had come, before it goes back to the last commit.
            self._note_progress(memory.stopped, self.seen)
            memory.size = self.job.size
        # The step in which the loss was detected counts too: its work is lost.
        memory.steps_lost = self.uncommitted + self.in_step
        memory.history = memory.history[: self.state.epoch]
