"""Checkpoints: weights, optimizer state, history and the position in the data, written atomically as one .npz file."""

import dataclasses
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from labs.run import atomic, run_lock, worker
from labs.run.errors import LabError
from labs.training import hvd_ops, keras_internals
from labs.training.workers import Job

KEEP = 2


@dataclasses.dataclass(frozen=True)
class Position:
    """How far a run has come."""

    epoch: int = 0
    """Finished epochs. The order of the images, their augmentation and dropout follow from the seed and the epoch."""
    history: tuple[dict[str, float], ...] = ()
    """One row per finished epoch."""
    step: int = 0
    """Steps taken in the next epoch, if the run was saved between two steps."""
    seconds: float = 0.0
    """How long these steps took."""
    worker_states: tuple[tuple[np.ndarray, ...], ...] = ()
    """After these steps, by rank: the values of `worker_state`, which differ between workers."""

    def __str__(self) -> str:
        return f"epoch {self.epoch}" + f", step {self.step}" * (self.step > 0)


def worker_state(model: tf.keras.Model) -> list[tf.Variable]:
    """Return what differs between workers within an epoch: sums of metrics, states of batch norm and of dropout."""
    sums = [variable for metric in model.metrics for variable in metric.variables]
    variables = [keras_internals.tf_variable(variable) for variable in [*sums, *model.non_trainable_weights]]
    return [*variables, *keras_internals.random_state(model)]


def save(folder: Path, model: tf.keras.Model, position: Position, config: Any, identity: Mapping[str, Any]) -> Path:
    """Write a checkpoint, delete all but the last two, and return its path; rank 0 alone calls it."""
    arrays: dict[str, Any] = {f"v{number:04d}": keras_internals.as_array(variable)
                              for number, variable in enumerate(keras_internals.state(model))}
    arrays |= {f"rank{rank:04d}v{number:04d}": value for rank, values in enumerate(position.worker_states)
               for number, value in enumerate(values)}
    meta = {"position": vars(position) | {"worker_states": ()}, "config": dataclasses.asdict(config),
            "identity": dict(identity), "shapes": _shapes(model), "arrays": sorted(arrays)}
    path = folder / (f"epoch-{position.epoch:05d}" + f"-step-{position.step:07d}" * (position.step > 0) + ".npz")
    with atomic.writing(path) as file:
        np.savez(file, meta=np.array(json.dumps(meta, default=str)), **arrays)
    for old in by_age(folder)[:-KEEP]:
        old.unlink()
    return path


def restore(folder: Path, model: tf.keras.Model, config: Any, identity: Mapping[str, Any]) -> Position:
    """Load the newest intact checkpoint into the model, and return its position; without one, return the beginning."""
    for path in reversed(by_age(folder)):
        try:
            meta, arrays = _read(path)
        except Exception:  # A damaged zip makes zipfile and numpy raise almost anything.
            print(f"labs: {path.name} is damaged; trying the previous one", flush=True)
            continue
        _check_same_run(path, meta, model, config, identity)
        for number, variable in enumerate(keras_internals.state(model)):
            variable.assign(arrays[f"v{number:04d}"])
        by_rank: dict[str, list[np.ndarray]] = {}
        for name in sorted(name for name in arrays if name.startswith("rank")):
            by_rank.setdefault(name[:8], []).append(arrays[name])
        return Position(**meta["position"] | {"history": tuple(meta["position"]["history"]),
                                              "worker_states": tuple(map(tuple, by_rank.values()))})
    return Position()


def by_age(folder: Path) -> list[Path]:
    """Return the checkpoints, the newest last; sorted by stem, since "-step-" sorts before ".npz"."""
    return sorted(folder.glob("epoch-*.npz"), key=lambda path: path.stem)


def _read(path: Path) -> tuple[dict, dict[str, np.ndarray]]:
    """Return a checkpoint's metadata, and its arrays by name; raise an exception if the file is damaged."""
    with np.load(path, allow_pickle=False) as file:
        damaged = file.zip.testzip()  # numpy reads only as far as an array's header says, and may miss damage.
        meta = json.loads(str(file["meta"]))
        if damaged or sorted(file.files) != ["meta", *meta["arrays"]]:
            raise ValueError(f"{damaged or 'an array'} is not as it was written")
        return meta, {name: file[name] for name in meta["arrays"]}


def _check_same_run(path: Path, meta: dict, model: tf.keras.Model, config: Any, identity: Mapping[str, Any]) -> None:
    """Raise unless a checkpoint is of the same config (except its epochs), data and versions, and of the same model."""
    run, saved = path.parents[1].name, meta["identity"]
    run_lock.refuse_changed(run, meta["config"], dataclasses.asdict(config))
    if saved["data"] != identity["data"]:
        raise LabError(f"the data has changed since {run!r} saved {path.name} (an image, a label or the test set); "
                       "choose another --name")
    run_lock.refuse_changed(run, saved["settings"], identity["settings"], are_options=False)
    if meta["shapes"] != _shapes(model):
        raise LabError(f"{path} holds another model; resume it with the code it was started with, or choose another "
                       "--name")


def _shapes(model: tf.keras.Model) -> list[list[int]]:
    return [list(variable.shape) for variable in keras_internals.state(model)]


class Saver:
    """Saves a run after each epoch, and between steps if `save_seconds` have passed or the run is asked to stop."""

    def __init__(self, job: Job, model: tf.keras.Model, position: Position, identity: Mapping[str, Any]):
        self.job, self.model, self.position, self.identity = job, model, position, identity
        self.saved = self.began = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds that the epoch has taken, including those before an interruption."""
        return time.perf_counter() - self.began

    def begin_epoch(self) -> None:
        """Start the epoch's clock."""
        self.began = time.perf_counter() - self.position.seconds

    def restore_worker_state(self) -> None:
        """Restore this worker's own state if the run was saved between two steps."""
        if self.position.step:
            values = self.position.worker_states[self.job.rank]
            for variable, value in zip(worker_state(self.model), values, strict=True):
                variable.assign(value)

    def after_step(self, step: int) -> bool:
        """Save after this step of the epoch if a save is due, and return whether the run must stop there."""
        due, stopping = self._due()
        if due or stopping:
            # Horovod: within an epoch only weights and optimizer are equal on all workers.
            mine = tuple(variable.numpy() for variable in worker_state(self.model))
            by_rank = tuple(hvd_ops.gather_object(mine))
            self._save(dataclasses.replace(self.position, step=step, seconds=self.seconds, worker_states=by_rank))
        return stopping

    def end_epoch(self, row: dict[str, float]) -> None:
        """Save after an epoch, with its row of the history."""
        self._save(Position(self.position.epoch + 1, (*self.position.history, row)))

    def stop_if_requested(self) -> None:
        """Raise Stopped after an epoch if the run was asked to stop."""
        if self._due()[1]:
            self.stop()

    def stop(self) -> None:
        """Raise Stopped on all workers; the run is saved."""
        epoch, step = self.position.epoch, self.position.step
        reached = f"step {step} of epoch {epoch + 1}" if step else f"epoch {epoch}"
        self.job.print_once(f"stopped and saved after {reached}")
        # Horovod: only rank 0 saves. A worker that stops exits with code 130, and mpirun then kills all others: wait.
        hvd_ops.barrier()
        raise worker.Stopped(f"asked to stop, and saved after {reached}")

    def _due(self) -> tuple[bool, bool]:
        """Return whether to save and whether to stop, the same on all workers."""
        due = time.perf_counter() - self.saved > self.job.options.save_seconds
        # Horovod: a signal may reach one worker a step earlier, and clocks differ, so all workers decide together.
        by_rank = hvd_ops.gather([due, worker.is_stop_requested()], "asked")
        return bool(by_rank[0, 0]), bool(by_rank[:, 1].any())

    def _save(self, position: Position) -> None:
        self.position, self.saved = position, time.perf_counter()
        if self.job.rank == 0:  # Horovod: all workers hold the same weights; one of them writes them.
            save(self.job.folder / "checkpoints", self.model, position, self.job.config, self.identity)
