"""Training that outlives its workers: who is left goes on from the last commit, who comes is brought up to it.

`fit` ends the run when a worker dies, and a new run goes on from the last epoch. Here the processes that are left stay,
and go back to the last commit, a copy of weights and optimizer in their memory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
import zlib
from collections.abc import Callable
from typing import Any

import horovod.tensorflow as hvd
import psutil
import tensorflow as tf
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.tensorflow.elastic import TensorFlowKerasState

from labs.datasets.pipeline import train_batches
from labs.datasets.sharding import coverage, shard
from labs.datasets.splits import Subset
from labs.run import fields, heartbeat, naming
from labs.run.errors import LabError
from labs.run.options import Options
from labs.run.run_lock import hold
from labs.run.text import plural
from labs.training import checkpoint, hvd_ops, schedule, workers
from labs.training.loop import _learning_rate, _line, _seed_dropout, compile_for, evaluate, take_steps
from labs.training.loopback import is_leaving, listen_on_loopback
from labs.training.workers import Job

LOST = "worker lost"
JOINED = "worker joined"


@dataclasses.dataclass
class Progress:
    """What a worker remembers of the run beside the weights; one who comes gets rank 0's."""

    began: float
    """When the first worker's process began, in seconds since 1970."""
    stopped: float
    """When training last stood still."""
    steps_lost: int = 0
    """Steps since the last commit when it stopped."""
    size: int = 0
    """Workers before it stopped."""
    events: tuple[dict[str, Any], ...] = ()
    progress: tuple[dict[str, Any], ...] = ()
    history: tuple[dict[str, float], ...] = ()
    epoch_began: float = 0.0


class Elastic:
    """One worker of a run whose workers may come and go.

    Args:
        config: The lab's Config; with batch_size, epochs, base_lr, scaling, commit_steps and seed.
        options: Where the run lives; with a name, since workers who come later must find it.
        fault: Called after each step with this object; it may end workers, or have them come.

    Raises:
        LabError: Several workers were started in a way that cannot lose one, or an option needs workers that stay.
    """

    def __init__(self, config: Any, options: Options, fault: Callable[[Elastic], None] | None = None):
        fields.check(config)
        if options.timeline:
            raise LabError("Horovod's timeline ends with the first reset; leave out --timeline, or add --study resume")
        if options.tensorboard:
            raise LabError("the worker that logs may be lost; leave out --tensorboard, or add --study resume")
        self.lab, self.config, self.fault = naming.lab_name(config), config, fault
        self.gpu, self.threads = _join(config.seed)
        runs = naming.results_root(options) / self.lab
        name = naming.run_name(options, runs, hvd.size())
        self.options, self.folder = dataclasses.replace(options, name=name), runs / name
        began = psutil.Process().create_time()
        self.memory = Progress(began=began, stopped=began)
        self.claims = contextlib.ExitStack()
        self.uncommitted = 0
        self.in_step = self.running = False
        self.weights: list[dict[str, int]] = []

    def train(self, model: tf.keras.Model, optimizer: tf.keras.optimizers.Optimizer, train: Subset,
              test: Subset) -> dict:
        """Train through whatever happens to the other workers, and return loss and metrics over the test images.

        Args:
            model: Built, not compiled.
            optimizer: Its learning rate is set here, by the number of workers.
            train: Images that are trained on: each counts once per epoch.
            test: Images to judge by, at the end.
        """
        self.model, self.part = model, train
        # Horovod: the gradients are averaged over the workers that are there in that step.
        compile_for(model, hvd_ops.distributed_optimizer(optimizer), "sparse_categorical_crossentropy", ("accuracy",))
        position = checkpoint.Position()
        if self.options.resume:
            position = checkpoint.restore(self.folder / "checkpoints", model, self.config)
        self.memory.history = position.history
        # Horovod: what it copies at a commit, restores after a loss, and sends to workers that come.
        state = TensorFlowKerasState(model, optimizer=model.optimizer, epoch=position.epoch, seen=0,
                                     step=int(model.optimizer.iterations))
        # Horovod: calls `segment` again after each reset, when state and workers are in order.
        return hvd.elastic.run(self._segment)(state, test)

    def close(self) -> None:
        """End the watch and let go of the run's folder."""
        if heartbeat.current():
            heartbeat.current().close()
        self.claims.close()

    @property
    def done(self) -> float:
        """Epochs trained so far, with the steps that are not committed yet."""
        return self.state.epoch + self.seen / len(self.part)

    def _segment(self, state: TensorFlowKerasState, test: Subset) -> dict[str, float]:
        """Train until the end, or until the set of workers changes."""
        self.state, self.seen, self.uncommitted = state, state.seen, 0
        self.in_step = self.running = False
        try:
            self._gather()
            while state.epoch < self.config.epochs:
                self._epoch()
            heartbeat.current().pause()
            self.weights = _weights(self.model)
            return evaluate(self.job, self.model, test, self.config.batch_size)
        except (HorovodInternalError, HostsUpdatedInterrupt):
            self._stop()
            raise
        except tf.errors.OpError as error:
            self._stop()
            raise _horovods(error) from None

    def _gather(self) -> None:
        """Bring all workers that are here to one understanding of the run."""
        layout = workers.layout(self.gpu, self.threads)
        # Horovod: ranks are dealt anew at each reset; those who have been there longest come first.
        self.memory = hvd_ops.broadcast_object(self.memory)
        if layout.rank == 0 and not hasattr(self, "job"):
            # A survivor who takes over goes on in a folder that has checkpoints.
            options = dataclasses.replace(self.options, resume=self.options.resume or bool(self.memory.events))
            self.claims.enter_context(hold(self.lab, options, layout.size))
        self.job = Job(self.lab, self.folder.name, self.folder, self.config, self.options, layout, self.memory.began)
        self._watch(layout)
        # Horovod: fewer workers make smaller steps of the whole, and the learning rate follows.
        rate = schedule.scaled_lr(self.config.base_lr, layout.size, self.config.scaling)
        self.model.optimizer.learning_rate.assign(rate)
        self.job.say(f"{self.lab}: {layout}, learning rate {rate:.4g}")

    def _watch(self, layout: workers.Layout) -> None:
        """Watch this worker under the rank that it has now."""
        if heartbeat.current():
            heartbeat.current().close()
        heartbeat.begin(self.folder / "places", layout.rank, self.options.stall_seconds, layout.hosts[layout.rank])
        for place in (self.folder / "places").glob("rank-*"):
            if int(place.name.partition("-")[2]) >= layout.size:
                place.unlink(missing_ok=True)  # Of a worker that is gone: nobody waits for it.

    def _epoch(self) -> None:
        """Train on what is left of the epoch."""
        state, config, job = self.state, self.config, self.job
        order = shard(self.part.positions, 1, 0, 1, state.epoch, config.seed).rows[:, 0]
        # Horovod: shards nothing. What the workers before have not used is dealt out to those who are here now.
        first, left = state.seen, order[state.seen :]
        mine = shard(left, config.batch_size, job.rank, job.size, state.epoch, config.seed, shuffle=False)
        proof = coverage(hvd_ops.gather_object(mine), left)
        if not self.running:
            job.say(proof)
        _seed_dropout(self.model, config.seed, state.epoch, job.rank)
        self.model.reset_metrics()
        batches = iter(train_batches(self.part.images, self.part.labels, mine, epoch=state.epoch, seed=config.seed))
        self.memory.epoch_began = self.memory.epoch_began or time.time()
        for step in range(mine.steps):
            self.in_step = True
            take_steps(self.model, batches, 1)
            self.in_step = False
            self.uncommitted += 1
            self.seen = min(first + (step + 1) * config.batch_size * job.size, len(order))
            self._moved()
            if self.uncommitted == config.commit_steps and self.seen < len(order):
                self._commit()
        self._finish_epoch(float(mine.weights.sum()))

    def _moved(self) -> None:
        """Note that training goes on; after a reset, what the reset has cost."""
        memory, now = self.memory, time.time()
        heartbeat.current().step(self.state.epoch + 1, self.state.step + self.uncommitted)
        if not self.running:
            kind = "start" if not memory.size else LOST if self.job.size < memory.size else JOINED
            event = {"kind": kind, "seconds": now - memory.began, "size": self.job.size, "step": self.state.step,
                     "steps_lost": memory.steps_lost, "seconds_lost": now - memory.stopped}
            memory.events += (event,)
            memory.progress += (self._point(memory.stopped, self.state.seen), self._point(now, self.seen))
            self.job.say(f"{kind}: size {event['size']} from step {event['step']} on, "
                         f"{plural(event['steps_lost'], 'step')} and {event['seconds_lost']:.1f} s lost")
        self.running, memory.stopped = True, now
        if self.fault:
            self.fault(self)

    def _commit(self) -> None:
        """Copy weights, optimizer and place in the data to memory; then look whether workers come or go."""
        self.state.seen, self.state.step = self.seen, self.state.step + self.uncommitted
        self.state.save()
        self.uncommitted = 0
        self.memory.progress += (self._point(time.time(), self.seen),)
        # Horovod: all workers ask rank 0 together, and are interrupted together: nothing is lost.
        self.state.check_host_updates()

    def _finish_epoch(self, weight: float) -> None:
        """Write the epoch into the history, and a checkpoint for the case that all workers are lost."""
        memory, state, job = self.memory, self.state, self.job
        workers.compare_weights(self.model, f"after epoch {state.epoch + 1}")
        means = hvd_ops.mean_over_workers({each.name: float(each.result()) for each in self.model.metrics}, weight)
        now = time.time()
        row = {"epoch": state.epoch + 1, **means, "learning_rate": _learning_rate(self.model),
               "images": len(self.part),
               "steps": state.step + self.uncommitted - sum(row["steps"] for row in memory.history),
               "train_seconds": now - memory.epoch_began, "size": job.size}
        memory.history += (row,)
        memory.epoch_began = now
        state.epoch, self.seen = state.epoch + 1, 0
        if job.rank == 0:
            position = checkpoint.Position(state.epoch, memory.history)
            checkpoint.save(self.folder / "checkpoints", self.model, position, job.config)
        job.say(_line(row, self.config.epochs))
        self._commit()

    def _point(self, when: float, seen: int) -> dict[str, float]:
        """Return how far the run had come at a time."""
        return {"seconds": when - self.memory.began, "epochs": self.state.epoch + seen / len(self.part),
                "size": self.job.size}

    def _stop(self) -> None:
        """Note what is lost now."""
        if heartbeat.current():
            heartbeat.current().pause()
        memory = self.memory
        memory.size = self.job.size if self.running else memory.size
        # The step in which the loss was found counts too: it was computed for nothing.
        memory.steps_lost = self.uncommitted + self.in_step
        memory.history = memory.history[: self.state.epoch]


def _join(seed: int) -> tuple[str | None, int]:
    """Start Horovod and give this worker its GPU and threads, without a word to workers that may be training."""
    started = int(os.environ.get("HOROVOD_SIZE", 1))
    listen_on_loopback()
    # Horovod: find the workers that wait for this one.
    hvd.init()
    if hvd.size() > 1 and os.environ.get("HOROVOD_ELASTIC") != "1":
        raise LabError("these workers cannot lose one: start them with `labs run`, or add --study resume")
    # Horovod: to it the loner is alone on its host; here that host is the same machine, and the last GPU its own.
    gpu = workers._pin_gpu(-1 if is_leaving() else hvd.local_rank(), 1)
    threads = workers._set_threads(max(1, len(os.sched_getaffinity(0)) // started))
    tf.keras.utils.set_random_seed(seed)
    tf.keras.backend.experimental.enable_tf_random_generator()
    return gpu, threads


def _weights(model: tf.keras.Model) -> list[dict[str, int]]:
    """Return a checksum of every worker's weights and optimizer state."""
    mine = zlib.crc32(repr(workers.checksums(model)).encode())
    return [{"rank": rank, "checksum": int(theirs)} for rank, (theirs,) in enumerate(hvd_ops.gather([mine]))]


def _horovods(error: tf.errors.OpError) -> Exception:
    """Return what Horovod makes of a lost worker; any other error as one line.

    Horovod 0.28.1 looks itself only for some of its operations, and takes any other UnknownError for the end of
    training.
    """
    if "Horovod" in str(error):
        return HorovodInternalError(str(error))
    return LabError((error.message or type(error).__name__).strip().splitlines()[0])
