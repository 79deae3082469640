"""The command line that every lab has, made from its Config.

    python -m labs.lab10_caltech --preset paper --batch-size 64
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import itertools
import json
import os
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from labs import durable
from labs.errors import LabError
from labs.places import ROOT, results_dir


@dataclasses.dataclass(frozen=True)
class Options:
    """Where a run lives and how it is watched: nothing here changes the experiment."""

    name: str | None = None
    """Folder of the run under results/<lab>/; made from the time and the number of workers if left out."""
    results: Path | None = None
    """The results store; `results/` of the clone if left out."""
    resume: bool = False
    """Go on from the last checkpoint of the run called --name (without --name: of the newest unfinished run)."""
    stall_seconds: float = 60.0
    """End the run when a worker has not moved for so long."""
    save_seconds: float = 600.0
    """Save between two steps when the last checkpoint is so old; there is one after each epoch anyway."""
    timeline: bool = False
    """Write Horovod's timeline of the run (every message, with its times) beside its record; costs rank 0 a core."""
    tensorboard: bool = False
    """Log each epoch of the training for TensorBoard, beside its record."""


def names() -> list[str]:
    """Return the labs that this clone has, by number."""
    return sorted(path.stem for path in (ROOT / "labs").glob("lab[0-9][0-9]_*.py"))


def called(lab: ModuleType) -> str:
    """Return a lab's name."""
    return lab.__name__.removeprefix("labs.")


def title(lab: ModuleType) -> str:
    """Return the line that says what a lab is about."""
    return (lab.__doc__ or "").partition("\n")[0]


def mark(config: Any) -> str:
    """Return eight digits that two Configs share only if all their values are equal."""
    settings = json.dumps(dataclasses.asdict(config), sort_keys=True, default=str)
    return hashlib.blake2b(settings.encode(), digest_size=4).hexdigest()


def find(name: str) -> ModuleType:
    """Import a lab by its name, or by any beginning of it that only one lab has ("lab10").

    Raises:
        LabError: No lab, or more than one, is called so.
    """
    matches = [lab for lab in names() if lab == name] or [lab for lab in names() if lab.startswith(name)]
    if len(matches) != 1:
        problem = "no lab is called" if not matches else "more than one lab is called"
        raise LabError(f"{problem} {name!r}; there are: {', '.join(matches or names())}")
    return importlib.import_module(f"labs.{matches[0]}")


def store(options: Options) -> Path:
    """Return the results store of a run."""
    return Path(options.results) if options.results else results_dir()


def run_name(options: Options, runs: Path, workers: int) -> str:
    """Return the name of the run's folder under `runs`: asked for, or the one to resume, or a new one."""
    return options.name or (options.resume and _unfinished(runs)) or _new(runs, workers)


def _new(runs: Path, workers: int) -> str:
    """Name a run by its second; a small run may have begun and ended in the same one."""
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-w{workers}"
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(name for name in names if not (runs / name).exists())


def _unfinished(runs: Path) -> str | None:
    """Return the newest run that has a checkpoint and no record."""
    saved = [path for path in runs.glob("*/checkpoints/*.npz") if not (path.parents[1] / "record.json").exists()]
    return max(saved, key=lambda path: path.stat().st_mtime).parents[1].name if saved else None


def parse(lab: ModuleType, arguments: Sequence[str]) -> tuple[Any, Options]:
    """Return the lab's Config and the run's Options that a command line asks for."""
    import tyro

    if any(word == "--results=" or pair == ("--results", "") for pair in itertools.pairwise(["", *arguments])
           for word in pair):
        raise LabError("--results is empty, and names no folder; give one, or leave it out")
    preset, rest = split_preset(lab, arguments)
    flat = tyro.conf.OmitArgPrefixes
    both = dataclasses.make_dataclass("Both", [("config", flat[lab.Config]), ("options", flat[Options])])
    asked = tyro.cli(
        both,
        prog=f"labs run {called(lab)}",
        description=f"{lab.__doc__}\n--preset {' | '.join(lab.PRESETS)}: whence the defaults below come ({preset}).",
        default=both(lab.PRESETS[preset], Options()),
        args=rest,
    )
    check(asked.config)
    check(asked.options)
    return asked.config, asked.options


def spell(lab: ModuleType, config: Any) -> list[str]:
    """Return the command line that asks for a Config, as a notebook needs it to run its own on several workers."""
    words = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        option = field.name.replace("_", "-")
        if value == getattr(lab.PRESETS["demo"], field.name):
            continue
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        else:
            words += [f"--{option}", str(value)]
    return words


RANGES = {
    "batch_size": (1, 1 << 20),
    "epochs": (1, 1 << 20),
    "steps_per_epoch": (0, 1 << 20),
    "image_size": (16, 4096),
    "base_lr": (1e-12, 1e38),
    "base_batch_size": (1, 1 << 20),
    "warmup_epochs": (0, 1 << 20),
    "decay_epoch": (0, 1 << 20),
    "trials": (0, 1 << 20),
    "width": (1, 4096),
    "depth": (0, 1024),
    "heads": (1, 4096),
    "patch_size": (1, 4096),
    "noise_level": (0.001, 255),
    "memory_limit_mb": (0, 1 << 30),
    "momentum": (0, 0.9999),
    "test_split": (0, 0.9),
    "validation_split": (0, 0.9),
    "seed": (0, (1 << 32) - 1),
    "images": (0, 1 << 40),
    "threads": (0, 4096),
    "largest_mb": (1e-6, 1 << 20),
    "seconds": (0.001, 1 << 20),
    "cycle_time_ms": (0.01, 1000),
    "fusion_threshold_mb": (0, 4096),
    "stall_seconds": (0.1, 1 << 20),
    "save_seconds": (0.1, 1 << 40),
    "commit_steps": (1, 1 << 20),
    "leave_epoch": (0, 1 << 20),
    "return_epoch": (0, 1 << 20),
}
"""What can work at all, by name: a name means the same in every lab."""


def check(values: Any) -> None:
    """Refuse numbers that cannot work, before anything is started.

    Raises:
        LabError: Names the option and its range.
    """
    for field in dataclasses.fields(values):
        low, high = RANGES.get(field.name, (None, None))
        value = getattr(values, field.name)
        if low is not None and not low <= value <= high:
            option = "--" + field.name.replace("_", "-")
            raise LabError(f"{option} {value} is out of range; choose a number from {low} to {high}")


def split_preset(lab: ModuleType, arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Take `--preset NAME` out of the arguments: it decides the defaults of all others."""
    import argparse

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--preset", default="demo")
    known, rest = parser.parse_known_args(arguments)
    if known.preset not in lab.PRESETS:
        raise LabError(f"no preset is called {known.preset!r}; {lab.__name__} has: {', '.join(lab.PRESETS)}")
    return known.preset, rest


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the lab whose module was started as the program, as one worker of its run."""
    lab = importlib.import_module(sys.modules["__main__"].__spec__.name)  # type: ignore[union-attr]  # Of `python -m`.
    try:
        config, options = parse(lab, sys.argv[1:] if arguments is None else arguments)
        os.environ.update(getattr(lab, "VARIABLES", {}))  # Read when TensorFlow loads.
        _load_tensorflow()
        lab.run(config, options)
    except BaseException as problem:
        _leave(durable.told(problem))


def _load_tensorflow() -> None:
    """Load TensorFlow and Keras less what Keras would load for inputs that no lab has: a second of each start."""
    hidden = {"pandas", "scipy"} - sys.modules.keys()
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # What is None there cannot be imported.
    try:
        for name in ("tensorflow", "keras"):
            importlib.import_module(name)
    finally:
        for name in hidden:
            del sys.modules[name]


def _leave(problem: BaseException) -> None:
    """End this worker at once, with a last line that says who stopped, where and why.

    An ordinary exit would wait in Horovod's shutdown for workers that wait for this one; the sudden end makes the
    launcher end all of them.
    """
    from labs.training import watch

    if isinstance(problem, SystemExit) and watch.current() is None:
        raise problem  # --help, and tyro's own messages.
    sys.stdout.flush()
    echo = "Horovod has been shut down" in str(problem) or "HorovodInternalError" in str(problem)
    if not echo and not isinstance(problem, LabError | KeyboardInterrupt):
        traceback.print_exception(problem)
    if echo or watch.rank() != 0:
        time.sleep(1.0)  # What all workers find at once, rank 0 tells alone; an echo lets the cause be told first.
    cause = "stopped, since another worker has ended" if echo else _cause(problem)
    print(f"labs: error: {watch.whereabouts()}{cause}", file=sys.stderr, flush=True)
    os._exit(130 if isinstance(problem, KeyboardInterrupt) else 1)


def _cause(problem: BaseException) -> str:
    """Return an exception as one line."""
    first = (str(problem).strip() or "no reason given").splitlines()[0]
    if isinstance(problem, LabError):
        return first
    if isinstance(problem, SystemExit):
        return f"left the run before its end, with sys.exit({problem.code!r})"
    if isinstance(problem, KeyboardInterrupt):
        return str(problem) or "interrupted"
    return f"{type(problem).__name__}: {first}"
