"""Checks before a run starts: errors that it would find only after importing TensorFlow, and doubtful values."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from labs.results import records
from labs.run import run_lock, terminal, usage
from labs.run.catalogue import Lab
from labs.run.errors import quoted

FEWEST = 256
"""The embedded data sets have more training images; a smaller step need not wait until their index is read."""


def refuse(lab: Lab, config: Any, workers: int) -> None:
    """Refuse a Config that cannot be trained with, or whose record could not be read.

    Args:
        lab: The lab.
        config: Its Config.
        workers: The run's number of workers.

    Raises:
        LabError: Names the cause.
    """
    lab.check(config, workers)
    records.refuse_unreadable(lab.name, config)
    data, step = getattr(config, "data", "embedded"), getattr(config, "batch_size", 1) * workers
    if lab.data_set and (data != "embedded" or step > FEWEST):
        from labs.datasets import sharding, splits

        sharding.refuse_large_batch(step, splits.training_images(lab.data_set, data, config))


def warn(config: Any) -> None:
    """Warn of what is valid but doubtful in a Config."""
    epochs, warmup = getattr(config, "epochs", 0), getattr(config, "warmup_epochs", 0)
    if warmup > epochs:
        terminal.note(f"the learning rate will not reach its full value: --warmup-epochs {warmup:g}, --epochs {epochs}")


def refuse_run(lab: Lab, config: Any, folder: Path, resume: bool, workers: int) -> None:
    """Refuse a run that is locked, finished or cannot be resumed like this; report if there is nothing to resume.

    Args:
        lab: The lab.
        config: Its Config.
        folder: The run's folder.
        resume: Whether --resume was given.
        workers: The run's number of workers.

    Raises:
        LabError: Names the cause.
    """
    run_lock.refuse_held(folder)
    run_lock.refuse_taken(lab.name, folder, resume)
    if not resume:
        return
    if not run_lock.is_saved(folder):
        others = [path.parent.name for path in folder.parent.glob("*/checkpoints")]
        terminal.note(f"run {quoted(folder.name)} of {lab.name} has saved nothing and starts from the beginning"
                      f"{usage.suggestion(folder.name, others)}")
    elif before := run_lock.started_with(folder):
        run_lock.refuse_changed(folder.name, before["config"], dataclasses.asdict(config))
        if before["workers"]:  # 0: it may change, as in elastic training.
            run_lock.refuse_changed(folder.name, {"workers": before["workers"]}, {"workers": workers})
    if hasattr(config, "epochs"):
        run_lock.refuse_fewer_epochs(folder, config.epochs)
