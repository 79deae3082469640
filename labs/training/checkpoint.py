"""Checkpoints: weights, optimizer state, history and the place in the data, in one file that is whole or not there.

The file is a plain .npz (a zip with a CRC-32 for each array, read without pickle); `durable.writing` makes it whole.
"""

from __future__ import annotations

import dataclasses
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from labs import durable
from labs.errors import LabError

KEEP = 2


@dataclasses.dataclass(frozen=True)
class Position:
    """How far a run has come."""

    epoch: int = 0
    """Finished epochs. The order of the images, their augmentation and dropout follow from the seed and the epoch."""
    history: tuple[dict[str, float], ...] = ()
    """One row per finished epoch."""


def save(folder: Path, model: tf.keras.Model, position: Position, config: Any) -> Path:
    """Write a checkpoint and drop all but the last two; rank 0 alone calls it, since all workers hold the same.

    Args:
        folder: The run's folder of checkpoints.
        model: Compiled and built, so that the optimizer's state exists.
        position: How far the run has come.
        config: The lab's Config, which a run that resumes must share.
    """
    meta = {"position": dataclasses.asdict(position), "config": dataclasses.asdict(config), "shapes": _shapes(model)}
    path = folder / f"epoch-{position.epoch:05d}.npz"
    with durable.writing(path) as file:
        np.savez(file, meta=np.array(json.dumps(meta, default=str)),
                 **{f"v{place:04d}": variable.numpy() for place, variable in enumerate(_state(model))})
    for old in sorted(folder.glob("epoch-*.npz"))[:-KEEP]:
        old.unlink()
    return path


def restore(folder: Path, model: tf.keras.Model, config: Any) -> Position:
    """Load the newest checkpoint that is sound into the model; without one, return the beginning.

    Raises:
        LabError: The checkpoint is of another config or of another model.
    """
    for path in sorted(folder.glob("epoch-*.npz"), reverse=True):
        try:
            meta, values = _read(path)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            print(f"labs: {path.name} is damaged; trying the one before", flush=True)
            continue
        _same_run(path, meta, model, config)
        for variable, value in zip(_state(model), values, strict=True):
            variable.assign(value)
        return Position(meta["position"]["epoch"], tuple(meta["position"]["history"]))
    return Position()


def _read(path: Path) -> tuple[dict, list[np.ndarray]]:
    with np.load(path, allow_pickle=False) as file:
        meta = json.loads(str(file["meta"]))
        return meta, [file[name] for name in sorted(file.files) if name != "meta"]


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
