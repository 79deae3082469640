"""A lab's command line, made from its Config, and the reverse.

    python -m labs.lab10_caltech --preset paper --batch-size 64
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from labs.run import fields, usage
from labs.run.errors import LabError, quoted
from labs.run.lab import Lab
from labs.run.options import LAUNCH, Options
from labs.run.paths import labs_command

LAUNCH_FLAGS = [f"--{name}" for name in LAUNCH]


def parse(lab: Lab, arguments: Sequence[str], launches: bool = False,
          known: Sequence[str] = ()) -> tuple[Any, Options]:
    """Parse a lab's command line into its Config and the run's Options.

    Args:
        lab: The lab.
        arguments: The command line without the options of the launch.
        launches: Whether --help shows the options of the launch as well.
        known: Other options of the command, to be suggested for a misspelled one.

    Raises:
        LabError: The command line is wrong.
    """
    import tyro

    preset, rest = split_preset(lab, arguments)
    usage.refuse_empty(rest)
    usage.refuse_foreign_digits(rest)
    if not launches:
        _refuse_launch_options(lab, arguments)
    flat = tyro.conf.OmitArgPrefixes
    groups: list[tuple] = [("experiment", flat[lab.Config], lab.presets[preset]), ("run", flat[Options], Options())]
    if launches:
        launch = _launch()
        groups.append(("launch", flat[launch], launch()))
        known = LAUNCH_FLAGS
    prog = f"labs run {lab.name}"
    with usage.errors_as_one_line(["--preset", *known, *flags(lab.Config), *flags(Options)], prog):
        args: Any = tyro.cli(
            dataclasses.make_dataclass("CommandLine", groups),
            prog=prog,
            description=f"{lab.description}\n{_first(lab.presets[preset])}\n--preset {' | '.join(lab.presets)}: "
                        f"the defaults are from preset {preset}.",
            args=rest,
        )
    fields.check(args.experiment)
    fields.check(args.run)
    return args.experiment, args.run


def _refuse_launch_options(lab: Lab, arguments: Sequence[str]) -> None:
    """Refuse `python -m labs.lab10_caltech --workers 2`: this program is one worker and starts none."""
    for word in arguments:
        if word.partition("=")[0] in LAUNCH_FLAGS:
            raise LabError(f"{word.partition('=')[0]} is for `labs run`, which starts the workers: "
                           f"{labs_command()} run {lab.name} {shlex.join(arguments)}")


FIRST = {
    "workers": ("N", "processes that train together; each takes a core or a GPU"),
    "epochs": ("N", "passes over the training data"),
    "batch_size": ("N", "images per worker and step"),
    "data": ("NAME", "embedded, real, or your own folder"),
}
"""The options that come first in a lab's help, where the lab has them."""


def _first(defaults: Any) -> str:
    """Return a line for each of the most used options."""
    lines = [(f"--{name.replace('_', '-')} {value}", about, getattr(defaults, name, None))
             for name, (value, about) in FIRST.items() if name == "workers" or hasattr(defaults, name)]
    return "".join(f"    {option:14}  {about}{f' ({default})' * (default is not None)}\n"
                   for option, about, default in lines)


def _launch() -> type:
    """Return the options of the launch as a dataclass, for `labs run LAB --help`."""
    from typing import Annotated

    import tyro

    return dataclasses.make_dataclass("Launch", [
        ("workers", Annotated[int | None, tyro.conf.arg(help=LAUNCH["workers"])], None),
        ("oversubscribe", Annotated[tyro.conf.FlagCreatePairsOff[bool], tyro.conf.arg(help=LAUNCH["oversubscribe"])],
         False),
    ], frozen=True, namespace={"__doc__": "How many workers to start."})


def flags(settings: type) -> Iterator[str]:
    """Yield the options of a dataclass, such as --batch-size."""
    for field in dataclasses.fields(settings):
        option = field.name.replace("_", "-")
        yield f"--{option}"
        if field.type == "bool":
            yield f"--no-{option}"


def to_argv(config: Any) -> list[str]:
    """Return the options that turn a lab's defaults into a Config: `parse`, reversed."""
    argv = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        option = field.name.replace("_", "-")
        if value == field.default:
            continue
        if isinstance(value, bool):
            argv.append(f"--{option}" if value else f"--no-{option}")
        else:
            argv += [f"--{option}", str(value)]
    return argv


def split_preset(lab: Lab, arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Split `--preset NAME` from the arguments: the preset decides the defaults of all other options."""
    parser = usage.Parser(f"labs run {lab.name}", add_help=False, allow_abbrev=False)
    parser.add_argument("--preset", default="demo")
    known, rest = parser.parse_known_args(arguments)
    if known.preset not in lab.presets:
        raise LabError(f"no preset is called {quoted(known.preset)}; {lab.name} has: {', '.join(lab.presets)}")
    return known.preset, rest
