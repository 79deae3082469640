"""Options of a run, and fields of a lab's Config: the types that several labs share, with range and help.

    batch_size: fields.BatchSize = 32                          a shared type: range and help are below
    trials: Annotated[int, fields.Range(0, 2**20)] = 0         a field that one lab has: its docstring is the help

Every Config has `seed`. The kit also reads `batch_size`, `threads`, `data` and those of HOROVOD_FIELDS, if they exist.
"""

import dataclasses
import hashlib
import json
import re
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from labs.run.errors import LabError, quoted
from labs.run.paths import results_dir


class Range(NamedTuple):
    """The smallest and the largest value of a numeric field."""

    low: float
    high: float


Mnist = Annotated[str, '"embedded" (1,797 digits), "real" (after `labs data fetch mnist`) or a folder with mnist.npz.']
Cifar10 = Annotated[str, '"embedded" (synthetic), "real" (after `labs data fetch cifar10`) or a folder of .bin files.']
Caltech256 = Annotated[str, '"embedded" (synthetic), "real" (after `labs data fetch caltech256`) or class folders.']
Seed = Annotated[int, Range(0, 2**32 - 1), "Seed of the weights, the order of the images, and all that is random."]
BatchSize = Annotated[int, Range(1, 2**20), "Images per worker and step."]
BaseBatchSize = Annotated[int, Range(1, 2**20), "Images per step that base_lr is for; k is the multiple of a run."]
Epochs = Annotated[int, Range(1, 2**20), "Passes over the training images; the throughput leaves out the first."]
ImageCount = Annotated[int, Range(0, 2**40), "Training images to use, to keep a measurement short; 0: all."]
ImageSize = Annotated[int, Range(16, 4096), "Side of the images that the network sees, in pixels."]
LearningRate = Annotated[float, Range(1e-12, 1e38), "Learning rate for one worker, before scaling."]
Momentum = Annotated[float, Range(0, 0.9999), "Momentum of SGD."]
Scaling = Annotated[Literal["linear", "sqrt", "none"], "How the learning rate grows with the global batch."]
WarmupEpochs = Annotated[float, Range(0, 2**20), "Epochs in which the learning rate rises to its scaled value."]
Share = Annotated[float, Range(0, 0.9), "Share of the training images held out for validation, per class."]
TestShare = Annotated[float, Range(1e-6, 0.9), "Share of all images held out for the test, per class."]
Threads = Annotated[int, Range(0, 4096), "TensorFlow's threads of one worker; 0: its share of the cores."]
Backend = Annotated[Literal["auto", "mpi", "gloo", "nccl"], '"mpi" or "gloo" carries gradients through the '
                    'processors\' memory, "nccl" between GPUs; "auto": NCCL where Horovod has it, else MPI.']
CycleTime = Annotated[float, Range(0.01, 1000), "Milliseconds that Horovod waits for more tensors before it sends."]
FusionThreshold = Annotated[float, Range(0, 4096), "MiB of tensors that Horovod sends as one message; 0: no fusion."]
Width = Annotated[int, Range(1, 4096), "Channels of the network's convolutions."]
Depth = Annotated[int, Range(0, 1024), "Number of its layers."]

HOROVOD_FIELDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "backend": ("HOROVOD_CPU_OPERATIONS", lambda name: "gloo" if name == "gloo" else "mpi"),
    "cycle_time_ms": ("HOROVOD_CYCLE_TIME", float),
    "fusion_threshold_mb": ("HOROVOD_FUSION_THRESHOLD", lambda megabytes: int(megabytes * 2**20)),
}
"""For fields that a lab's Config may have: the variable from which Horovod reads each when it starts."""


@dataclasses.dataclass(frozen=True)
class Options:
    """The options that all labs have: where a run is stored and how it is supervised; none changes the experiment."""

    name: str | None = None
    """Folder of the run below results/<lab>/; by default named after the time and the number of workers."""
    results: Path | None = None
    """The results folder; by default `results/` of the clone."""
    resume: bool = False
    """Continue from the last checkpoint of the run --name, or without --name of the newest unfinished run."""
    stall_seconds: Annotated[float, Range(0.1, 2**20)] = 60.0
    """End the run when a worker has taken no step for this many seconds."""
    save_seconds: Annotated[float, Range(0.1, 2**40)] = 600.0
    """Save between two steps when the last checkpoint is this many seconds old; each epoch also ends with one."""
    timeline: bool = False
    """Write Horovod's timeline (every message, with its times) to the run's folder; costs rank 0 a core."""
    preset: str = "demo"
    """Where the defaults of the other experiment options come from."""

    def __post_init__(self):
        # A name must not lead outside its folder, nor be misread by a terminal or a shell.
        if self.name is not None and not re.fullmatch(r"\w([\w .+=-]{0,98}[\w.+=-])?", self.name):
            raise LabError(f"--name {quoted(self.name)} is not the name of one folder; choose at most 100 letters, "
                           "digits, '-', '_' and '.', as in --name night-1")

    @property
    def results_root(self) -> Path:
        """The folder that holds the runs of all labs."""
        return self.results or results_dir()


def metadata(settings: type, kind: type) -> dict[str, Any]:
    """Return what the types of a dataclass's fields are annotated with, by field: the ranges, or the helps (str)."""
    hints = typing.get_type_hints(settings, include_extras=True)
    return {field.name: each for field in dataclasses.fields(settings)
            for each in getattr(hints[field.name], "__metadata__", ()) if isinstance(each, kind)}


def check(config: Any) -> None:
    """Raise LabError for a number that is out of range, before anything starts."""
    for name, limits in metadata(type(config), Range).items():
        number = getattr(config, name)
        if not limits.low <= number <= limits.high:
            option = "--" + name.replace("_", "-")
            raise LabError(f"{option} {number} is out of range; choose a number from {limits.low} to {limits.high}")


def lab_name(config: Any) -> str:
    """Return the name of the lab to which a Config or its class belongs: the name of its module."""
    module = config.__module__
    if module == "__main__":  # Started with `python -m`, or in a notebook.
        spec = sys.modules[module].__spec__
        module = spec.name if spec else "interactive"
    return module.removeprefix("labs.")


def config_hash(config: Any) -> str:
    """Return eight hexadecimal digits that are equal for two Configs only if all their values are."""
    settings = json.dumps(dataclasses.asdict(config), sort_keys=True, default=str)
    return hashlib.blake2b(settings.encode(), digest_size=4).hexdigest()
