"""Fields of a lab's Config: the types that several labs share, with their ranges; and names made from a Config.

    batch_size: BatchSize = 32                          a shared type: its range is written once, below
    trials: Annotated[int, Range(0, 2**20)] = 0         a field that one lab has

The kit itself reads some fields, by these names: every Config has `seed`; it may have `batch_size`, `threads`, `data`
and those of HOROVOD_FIELDS.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from labs.run.errors import LabError


@dataclasses.dataclass(frozen=True)
class Range:
    """The smallest and the largest value of a numeric field."""

    low: float
    high: float


Seed = Annotated[int, Range(0, 2**32 - 1)]
"""Seeds Python, NumPy and Keras, and the order of the images."""
BatchSize = Annotated[int, Range(1, 2**20)]
"""Images per worker and step; records hold the global batch size as well."""
Threads = Annotated[int, Range(0, 4096)]
"""TensorFlow's threads of one worker; 0: its share of the node's cores."""
Backend = Literal["auto", "mpi", "gloo", "nccl"]
"""What carries the gradients; auto: NCCL where there are GPUs and Horovod has it, else MPI."""
CycleTime = Annotated[float, Range(0.01, 1000)]
"""Milliseconds that Horovod waits for more tensors before it sends a message."""
FusionThreshold = Annotated[float, Range(0, 4096)]
"""MiB of tensors that Horovod sends as one message."""
Epochs = Annotated[int, Range(1, 2**20)]
ImageCount = Annotated[int, Range(0, 2**40)]
ImageSize = Annotated[int, Range(16, 4096)]
LearningRate = Annotated[float, Range(1e-12, 1e38)]
Momentum = Annotated[float, Range(0, 0.9999)]
Scaling = Literal["linear", "sqrt", "none"]
Share = Annotated[float, Range(0, 0.9)]
TestShare = Annotated[float, Range(1e-6, 0.9)]
"""A lab that ends with a test needs images for it."""
WarmupEpochs = Annotated[float, Range(0, 2**20)]
Width = Annotated[int, Range(1, 4096)]
Depth = Annotated[int, Range(0, 1024)]


HOROVOD_FIELDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "backend": ("HOROVOD_CPU_OPERATIONS", lambda name: "gloo" if name == "gloo" else "mpi"),
    "cycle_time_ms": ("HOROVOD_CYCLE_TIME", float),
    "fusion_threshold_mb": ("HOROVOD_FUSION_THRESHOLD", lambda megabytes: int(megabytes * 2**20)),
}
"""For fields that a lab's Config may have: the variable from which Horovod reads each when it starts."""


def bounds(settings: type) -> dict[str, Range]:
    """Return the range of each field of a dataclass that has one."""
    hints = typing.get_type_hints(settings, include_extras=True)
    return {field.name: each for field in dataclasses.fields(settings)
            for each in getattr(hints[field.name], "__metadata__", ()) if isinstance(each, Range)}


def check(config: Any) -> None:
    """Refuse numbers that are out of range, before anything starts.

    Raises:
        LabError: A value is out of range; the message names the option and its range.
    """
    for name, limits in bounds(type(config)).items():
        number = getattr(config, name)
        if not limits.low <= number <= limits.high:
            option = "--" + name.replace("_", "-")
            raise LabError(f"{option} {number} is out of range; choose a number from {limits.low} to {limits.high}")


def lab_name(config: Any) -> str:
    """Return the name of the lab to which a Config or its class belongs: the name of its module."""
    module = (config if isinstance(config, type) else type(config)).__module__
    if module == "__main__":  # A program, started by its path or with `python -m`.
        main = sys.modules[module]
        module = main.__spec__.name if main.__spec__ else Path(main.__dict__.get("__file__", "interactive")).stem
    return module.removeprefix("labs.")


def config_hash(config: Any) -> str:
    """Return eight hexadecimal digits that are equal for two Configs only if all their values are."""
    settings = json.dumps(dataclasses.asdict(config), sort_keys=True, default=str)
    return hashlib.blake2b(settings.encode(), digest_size=4).hexdigest()
