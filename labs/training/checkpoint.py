"""Checkpoints: weights, optimizer state, history and the place in the data, in one file that is whole or not there.

The file is a plain .npz (a zip with a CRC-32 for each array, read without pickle); `atomic.writing` makes it whole.
"""

from __future__ import annotations

import dataclasses
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import psutil
import tensorflow as tf

from labs.run import atomic
from labs.run.errors import LabError
from labs.run.text import printable

KEEP = 2
PLACE = ("epoch", "history", "step", "seconds")
"""Of a position, what is told in words and not in arrays."""


@dataclasses.dataclass(frozen=True)
class Position:
    """How far a run has come."""

    epoch: int = 0
    """Finished epochs. The order of the images, their augmentation and dropout follow from the seed and the epoch."""
    history: tuple[dict[str, float], ...] = ()
    """One row per finished epoch."""
    step: int = 0
    """Steps taken of the epoch after them, where a run was saved between two steps."""
    seconds: float = 0.0
    """What these steps took."""
    own: tuple[tuple[np.ndarray, ...], ...] = ()
    """After these steps, by rank: the values of `own_state`, which the workers do not share."""


def worker_state(model: tf.keras.Model) -> list[tf.Variable]:
    """Return what is each worker's own within an epoch: sums of the metrics, statistics of its images, dropout's place.

    Args:
        model: Compiled and built.
    """
    sums = [variable for metric in model.metrics for variable in metric.variables]
    return [*sums, *model.non_trainable_weights, *(layer._random_generator._generator.state
                                                   for layer in random_layers(model))]


def as_array(variable: tf.Variable) -> np.ndarray:
    """Return a variable's value, to be read only; where it lies in this machine's memory, without a copy.

    Copies cost more than they seem to: memory that is new to a process is filled page by page.
    """
    value = variable.value()
    try:
        return np.asarray(memoryview(value))
    except ValueError:  # Of bfloat16, numpy hands on no memory.
        return value.numpy()


def random_layers(model: tf.keras.Model) -> Iterator[Any]:
    """Yield the layers that draw random numbers, such as dropout."""
    for layer in model._flatten_layers():
        generator = getattr(layer, "_random_generator", None)
        if getattr(generator, "_generator", None) is not None:
            yield layer


def save(folder: Path, model: tf.keras.Model, position: Position, config: Any) -> Path:
    """Write a checkpoint and drop all but the last two; rank 0 alone calls it, since all workers hold the same.

    Args:
        folder: The run's folder of checkpoints.
        model: Compiled and built, so that the optimizer's state exists.
        position: How far the run has come.
        config: The lab's Config, which a run that resumes must share.
    """
    place = {name: getattr(position, name) for name in PLACE}
    meta = {"position": place, "config": dataclasses.asdict(config), "shapes": _shapes(model)}
    shared = {f"v{number:04d}": as_array(variable) for number, variable in enumerate(_state(model))}
    own = {f"rank{rank:04d}v{number:04d}": value for rank, values in enumerate(position.own)
           for number, value in enumerate(values)}
    meta["arrays"] = sorted([*shared, *own])
    path = folder / (f"epoch-{position.epoch:05d}" + f"-step-{position.step:07d}" * (position.step > 0) + ".npz")
    with atomic.writing(path) as file:
        _write(file, {"meta": np.array(json.dumps(meta, default=str)), **shared, **own})
    for old in by_age(folder)[:-KEEP]:
        old.unlink()
    return path


def restore(folder: Path, model: tf.keras.Model, config: Any) -> Position:
    """Load the newest checkpoint that is sound into the model; without one, return the beginning.

    Raises:
        LabError: The checkpoint is of another config or of another model.
    """
    for path in reversed(by_age(folder)):
        try:
            meta, values, own = _read(path)
        except LabError as problem:  # Not a regular file, or too large for this machine.
            print(f"labs: {printable(problem)}; trying the one before", flush=True)
            continue
        except Exception:  # A damaged zip makes its reader, and numpy's, raise almost anything.
            print(f"labs: {path.name} is damaged; trying the one before", flush=True)
            continue
        _same_run(path, meta, model, config)
        for variable, value in zip(_state(model), values, strict=True):
            variable.assign(value)
        place = {name: meta["position"][name] for name in PLACE}
        return Position(**place | {"history": tuple(place["history"])}, own=own)
    return Position()


def by_age(folder: Path) -> list[Path]:
    """Return the checkpoints, the newest last; by their stems, since "-step-" comes before ".npz"."""
    return sorted(folder.glob("epoch-*.npz"), key=lambda path: path.stem)


def _write(file: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    """Do what `np.savez` does, which would copy every array on its way into the file."""
    with zipfile.ZipFile(file, "w") as parts:
        for name, array in arrays.items():
            with parts.open(f"{name}.npy", "w", force_zip64=True) as part:
                values = np.asarray(array, order="C")
                np.lib.format.write_array_header_1_0(part, np.lib.format.header_data_from_array_1_0(values))
                part.write(values.reshape(-1).view(np.uint8).data)


def _read(path: Path) -> tuple[dict, list[np.ndarray], tuple[tuple[np.ndarray, ...], ...]]:
    """Return what a checkpoint says of the run, the state all workers share, and each worker's own."""
    descriptor = atomic.open_regular(path, psutil.virtual_memory().total)
    with os.fdopen(descriptor, "rb") as whole, np.load(whole, allow_pickle=False) as file:
        if any(part.compress_type != zipfile.ZIP_STORED for part in file.zip.infolist()):
            raise ValueError("its arrays are compressed, as none is written: they could fill the memory")
        damaged = file.zip.testzip()  # Since numpy reads no further than an array's header says, be that damaged too.
        meta = json.loads(str(file["meta"]))
        if damaged or sorted(file.files) != ["meta", *meta["arrays"]]:
            raise ValueError(f"{damaged or 'an array'} is not as it was written")
        arrays = {name: file[name] for name in sorted(file.files) if name != "meta"}
    own: dict[str, list[np.ndarray]] = {}
    for name in [name for name in arrays if name.startswith("rank")]:
        own.setdefault(name[:8], []).append(arrays.pop(name))
    return meta, list(arrays.values()), tuple(tuple(values) for values in own.values())


def _same_run(path: Path, meta: dict, model: tf.keras.Model, config: Any) -> None:
    """A resumed run must be the run that was saved, only longer."""
    mine = json.loads(json.dumps(dataclasses.asdict(config), default=str))
    changed = [name for name in mine if name != "epochs" and mine[name] != meta["config"].get(name)]
    if changed:
        before = {name: meta["config"].get(name) for name in changed}
        raise LabError(f"{path.parents[1].name} was begun with {before}; resume it so, or choose another --name")
    if meta["shapes"] != _shapes(model):
        counts = f"{len(meta['shapes'])} variables, here {len(_shapes(model))}"
        raise LabError(
            f"{path} holds another model ({counts}, or of other shapes); resume it with the code it was begun with, "
            "or choose another --name"
        )


def _state(model: tf.keras.Model) -> list[tf.Variable]:
    return [*model.variables, *model.optimizer.variables]


def _shapes(model: tf.keras.Model) -> list[list[int]]:
    return [list(variable.shape) for variable in _state(model)]
