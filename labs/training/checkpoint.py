"""Checkpoints: weights, optimizer state, history and the position in the data, in one file that is written atomically.

The file is a plain .npz: a zip with a CRC-32 for each array, read without pickle.
"""

from __future__ import annotations

import dataclasses
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import numpy as np
import psutil
import tensorflow as tf

from labs.run import atomic, run_lock
from labs.run.errors import LabError
from labs.run.text import printable
from labs.training import keras_internals

KEEP = 2
JSON_FIELDS = ("epoch", "history", "step", "seconds")
"""Fields of a Position that are written as JSON; the other one holds arrays."""


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


def worker_state(model: tf.keras.Model) -> list[tf.Variable]:
    """Return the variables that differ between workers within an epoch.

    They are the sums of the metrics, the statistics of batch norm, and the state of dropout's random generators.

    Args:
        model: Compiled and built.
    """
    sums = [variable for metric in model.metrics for variable in metric.variables]
    variables = [keras_internals.tf_variable(variable) for variable in [*sums, *model.non_trainable_weights]]
    return [*variables, *keras_internals.random_state(model)]


def as_array(variable: tf.Variable) -> np.ndarray:
    """Return a variable's value as an array, only to be read; without a copy if it is in this machine's memory.

    A copy is expensive: the kernel has to fill every page of memory that is new to a process.
    """
    value = variable.value()
    try:
        return np.asarray(memoryview(value))
    except ValueError:  # numpy cannot share the memory of bfloat16.
        return value.numpy()


def save(folder: Path, model: tf.keras.Model, position: Position, config: Any,
         identity: Mapping[str, Any] = MappingProxyType({})) -> Path:
    """Write a checkpoint, delete all but the last two, and return its path; rank 0 alone calls it.

    Args:
        folder: The checkpoints' folder of the run.
        model: Compiled and built, so that the optimizer's state exists.
        position: How far the run has come.
        config: The lab's Config; a run that resumes must have the same.
        identity: What else it must have; see `agreement.identity`.
    """
    fields = {name: getattr(position, name) for name in JSON_FIELDS}
    meta = {"position": fields, "config": dataclasses.asdict(config), "identity": dict(identity),
            "shapes": _shapes(model), "keras": keras_internals.GENERATION}
    shared = {f"v{number:04d}": as_array(variable) for number, variable in enumerate(_state(model))}
    by_rank = {f"rank{rank:04d}v{number:04d}": value for rank, values in enumerate(position.worker_states)
               for number, value in enumerate(values)}
    meta["arrays"] = sorted([*shared, *by_rank])
    path = folder / (f"epoch-{position.epoch:05d}" + f"-step-{position.step:07d}" * (position.step > 0) + ".npz")
    with atomic.writing(path) as file:
        _write(file, {"meta": np.array(json.dumps(meta, default=str)), **shared, **by_rank})
    for old in by_age(folder)[:-KEEP]:
        old.unlink()
    return path


def restore(folder: Path, model: tf.keras.Model, config: Any,
            identity: Mapping[str, Any] = MappingProxyType({})) -> Position:
    """Load the newest intact checkpoint into the model, and return its position; without one, return the beginning.

    Args:
        folder: The checkpoints' folder of the run.
        model: Compiled and built.
        config: The lab's Config.
        identity: See `save`; entries that an older checkpoint lacks are not compared.

    Raises:
        LabError: The checkpoint belongs to another config, other data or another model.
    """
    for path in reversed(by_age(folder)):
        try:
            meta, values, by_rank = _read(path)
        except LabError as problem:  # Not a regular file, or too large for this machine.
            print(f"labs: {printable(problem)}; trying the previous one", flush=True)
            continue
        except Exception:  # A damaged zip makes zipfile and numpy raise almost anything.
            print(f"labs: {path.name} is damaged; trying the previous one", flush=True)
            continue
        _check_same_run(path, meta, model, config, identity)
        for variable, value in zip(_state(model), values, strict=True):
            variable.assign(value)
        fields = {name: meta["position"][name] for name in JSON_FIELDS}
        return Position(**fields | {"history": tuple(fields["history"])}, worker_states=by_rank)
    return Position()


def by_age(folder: Path) -> list[Path]:
    """Return the checkpoints, the newest last; sorted by stem, since "-step-" sorts before ".npz"."""
    return sorted(folder.glob("epoch-*.npz"), key=lambda path: path.stem)


def _write(file: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays as `np.savez` does, but without copying each of them."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                values = np.asarray(array, order="C")
                np.lib.format.write_array_header_1_0(member, np.lib.format.header_data_from_array_1_0(values))
                member.write(values.reshape(-1).view(np.uint8).data)


def _read(path: Path) -> tuple[dict, list[np.ndarray], tuple[tuple[np.ndarray, ...], ...]]:
    """Return a checkpoint's metadata, the state that all workers share, and each worker's own state by rank."""
    descriptor = atomic.open_regular(path, psutil.virtual_memory().total)
    with os.fdopen(descriptor, "rb") as whole, np.load(whole, allow_pickle=False) as file:
        if any(member.compress_type != zipfile.ZIP_STORED for member in file.zip.infolist()):
            raise ValueError("its arrays are compressed; the kit's are not, and these could fill the memory")
        damaged = file.zip.testzip()  # numpy reads only as far as an array's header says, and may miss damage.
        meta = json.loads(str(file["meta"]))
        if damaged or sorted(file.files) != ["meta", *meta["arrays"]]:
            raise ValueError(f"{damaged or 'an array'} is not as it was written")
        arrays = {name: file[name] for name in sorted(file.files) if name != "meta"}
    by_rank: dict[str, list[np.ndarray]] = {}
    for name in [name for name in arrays if name.startswith("rank")]:
        by_rank.setdefault(name[:8], []).append(arrays.pop(name))
    return meta, list(arrays.values()), tuple(tuple(values) for values in by_rank.values())


def _check_same_run(path: Path, meta: dict, model: tf.keras.Model, config: Any, identity: Mapping[str, Any]) -> None:
    """Raise unless a checkpoint is of the same config (except its epochs), data and versions, and of the same model."""
    run, saved = path.parents[1].name, meta.get("identity", {})
    run_lock.refuse_changed(run, meta["config"], dataclasses.asdict(config))
    if (then := saved.get("data")) and then != (now := identity.get("data", then)):
        raise LabError(f"the data has changed since {run!r} saved {path.name} ({then['train']['images']:,} training "
                       f"images then, {now['train']['images']:,} now); choose another --name")
    if (before := saved.get("settings")) and (after := identity.get("settings")):
        run_lock.refuse_changed(run, before, dict.fromkeys(before) | after)
    if (keras := meta.get("keras", 2)) != keras_internals.GENERATION:  # Older checkpoints are all of Keras 2.
        raise LabError(f"{path} was saved with Keras {keras}, and this is Keras {keras_internals.GENERATION}, which "
                       "orders the optimizer's state in another way; resume it with the stack it was started with, "
                       "or choose another --name")
    if meta["shapes"] != _shapes(model):
        counts = f"{len(meta['shapes'])} variables, here {len(_shapes(model))}"
        raise LabError(
            f"{path} holds another model ({counts}, or of other shapes); resume it with the code it was started with, "
            "or choose another --name"
        )


def _state(model: tf.keras.Model) -> list[tf.Variable]:
    return [keras_internals.tf_variable(variable) for variable in [*model.weights, *model.optimizer.variables]]


def _shapes(model: tf.keras.Model) -> list[list[int]]:
    return [list(variable.shape) for variable in _state(model)]
