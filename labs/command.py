"""The command line that every lab has, made from its Config.

    python -m labs.lab10_caltech --preset paper --batch-size 64
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import importlib
import itertools
import json
import os
import re
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from labs import durable, usage
from labs.errors import LabError, quoted
from labs.launch import lifeline
from labs.places import ROOT, results_dir
from labs.text import one_line


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

    def __post_init__(self):
        """Refuse a name that is no folder of its own below results/<lab>/."""
        if self.name is not None:
            check_name(self.name)


LAUNCH = {
    "workers": "Number of workers; by default one per task of the Slurm job, or one per GPU, or one.",
    "oversubscribe": "Allow more workers than cores.",
}
"""Help of the options that `labs run` takes beside a lab's own."""

LONGEST_NAME = 100
"""Bytes of a run's name: file systems take 255, and some files are named after a run."""


def check_name(name: str) -> None:
    """Refuse a run name that would leave the results folder, or that a terminal or a shell would misread.

    Raises:
        LabError: Names what is wrong with it.
    """
    problems = {
        "is empty": not name.strip(),
        f"is longer than {LONGEST_NAME} bytes": len(name.encode(errors="replace")) > LONGEST_NAME,
        "has a slash: a run is one folder below results/<lab>/, and --results chooses another place": "/" in name,
        "has a control character or one that cannot be printed": not name.isprintable(),
        "begins with a dot or a dash": name.startswith((".", "-")),
        "begins or ends with a space": name != name.strip(),
    }
    if wrong := next((problem for problem, found in problems.items() if found), ""):
        raise LabError(f"--name {quoted(name)} {wrong}; choose letters, digits, '-', '_' and '.', as in --name night-1")


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


def resolve(name: str) -> str:
    """Return a lab's full name, without importing it: from its number ("lab2", "02", "2") or a unique prefix.

    A number is exact: "lab1" is lab 1, though lab10 begins with the same letters.

    Raises:
        LabError: No lab, or more than one, has that name.
    """
    labs = names()
    number = re.fullmatch(r"(?:lab)?([0-9]+)", name)
    stem = f"lab{number[1].lstrip('0'):0>2}_" if number else ""
    matches = [lab for lab in labs if lab == name or (stem and lab.startswith(stem))]
    matches = matches or [lab for lab in labs if name and lab.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise LabError(f"more than one lab begins with {quoted(name)}: {', '.join(matches)}")
    raise LabError(f"no lab is called {quoted(name)}{_similar(name, labs)}; there are: {', '.join(labs)}")


def _similar(name: str, labs: Sequence[str]) -> str:
    """Return "; did you mean lab10_caltech?" if a lab's name, or its part behind the number, is similar."""
    parts = {part: lab for lab in labs for part in (lab, lab.partition("_")[2])}
    close = difflib.get_close_matches(name.lower(), parts, n=1, cutoff=0.75)
    return f"; did you mean {parts[close[0]]}?" if close else ""


def find(name: str) -> ModuleType:
    """Import a lab by its name, its number or a unique prefix.

    Raises:
        LabError: No lab, or more than one, has that name.
    """
    return importlib.import_module(f"labs.{resolve(name)}")


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


def parse(lab: ModuleType, arguments: Sequence[str], launches: bool = False,
          known: Sequence[str] = ()) -> tuple[Any, Options]:
    """Return the lab's Config and the run's Options that a command line asks for.

    Args:
        lab: The lab's module.
        arguments: Its own options; those of the launch have been taken out.
        launches: Whether the help shows the options of the launch too.
        known: Other options of the command, to be suggested for a misspelled one.

    Raises:
        LabError: The command line is wrong.
    """
    import tyro

    preset, rest = split_preset(lab, arguments)
    usage.refuse_empty(rest)
    flat = tyro.conf.OmitArgPrefixes
    fields: list[tuple] = [("experiment", flat[lab.Config], lab.PRESETS[preset]), ("run", flat[Options], Options())]
    if launches:
        launch = _launch()
        fields.append(("launch", flat[launch], launch()))
        known = ["--workers", "--oversubscribe"]
    prog = f"labs run {called(lab)}"
    with usage.one_line(["--preset", *known, *flags(lab.Config), *flags(Options)], prog):
        asked: Any = tyro.cli(
            dataclasses.make_dataclass("CommandLine", fields),
            prog=prog,
            description=f"{lab.__doc__}\n--preset {' | '.join(lab.PRESETS)}: "
                        f"where the defaults below come from ({preset}).",
            args=rest,
        )
    check(asked.experiment)
    check(asked.run)
    return asked.experiment, asked.run


def _launch() -> type:
    """Return the options of the launch as a dataclass, for the help of `labs run LAB`."""
    from typing import Annotated

    import tyro

    return dataclasses.make_dataclass("Launch", [
        ("workers", Annotated[int | None, tyro.conf.arg(help=LAUNCH["workers"])], None),
        ("oversubscribe", Annotated[tyro.conf.FlagCreatePairsOff[bool], tyro.conf.arg(help=LAUNCH["oversubscribe"])],
         False),
    ], frozen=True, namespace={"__doc__": "How many workers are started."})


def flags(settings: type) -> Iterator[str]:
    """Yield the options that are made from a dataclass."""
    for field in dataclasses.fields(settings):
        option = field.name.replace("_", "-")
        yield f"--{option}"
        if field.type == "bool":
            yield f"--no-{option}"


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
    parser = usage.Parser(f"labs run {called(lab)}", add_help=False, allow_abbrev=False)
    parser.add_argument("--preset", default="demo")
    known, rest = parser.parse_known_args(arguments)
    if known.preset not in lab.PRESETS:
        raise LabError(f"no preset is called {quoted(known.preset)}; {called(lab)} has: {', '.join(lab.PRESETS)}")
    return known.preset, rest


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the lab whose module was started as the program, as one worker of its run."""
    lifeline.end_with_launcher()
    lab = importlib.import_module(sys.modules["__main__"].__spec__.name)  # type: ignore[union-attr]  # Of `python -m`.
    try:
        config, options = parse(lab, sys.argv[1:] if arguments is None else arguments)
        os.environ.update(getattr(lab, "VARIABLES", {}))  # Read when TensorFlow loads.
        _load_tensorflow()
        lab.run(config, options)
    except BaseException as problem:
        _leave(_out_of_memory(durable.told(problem)))


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
    print(f"labs: error: {one_line(watch.whereabouts() + cause)}", file=sys.stderr, flush=True)
    os._exit(130 if isinstance(problem, KeyboardInterrupt) else 1)


def _out_of_memory(problem: BaseException) -> BaseException:
    """Return a failed allocation, Python's or TensorFlow's, as a LabError, and any other problem as it is."""
    if isinstance(problem, MemoryError) or type(problem).__name__ == "ResourceExhaustedError":
        return LabError("out of memory; lower --batch-size, or ask for more (sbatch --mem); lab 6 shows what fits")
    return problem


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
