"""The command line that every lab has, made from its Config.

    python -m labs.lab10_caltech --preset paper --batch-size 64
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from labs.run import usage
from labs.run.catalogue import lab_name
from labs.run.errors import LabError, quoted
from labs.run.options import LAUNCH, Options


def config_hash(config: Any) -> str:
    """Return eight digits that two Configs share only if all their values are equal."""
    settings = json.dumps(dataclasses.asdict(config), sort_keys=True, default=str)
    return hashlib.blake2b(settings.encode(), digest_size=4).hexdigest()


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
    prog = f"labs run {lab_name(lab)}"
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


def to_argv(lab: ModuleType, config: Any) -> list[str]:
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
    parser = usage.Parser(f"labs run {lab_name(lab)}", add_help=False, allow_abbrev=False)
    parser.add_argument("--preset", default="demo")
    known, rest = parser.parse_known_args(arguments)
    if known.preset not in lab.PRESETS:
        raise LabError(f"no preset is called {quoted(known.preset)}; {lab_name(lab)} has: {', '.join(lab.PRESETS)}")
    return known.preset, rest
