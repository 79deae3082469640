"""Command-line options from a lab's Config, and a Config's command line.

    python -m labs.lab10_caltech --preset paper --batch-size 64
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import functools
import inspect
import itertools
import shlex
import textwrap
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from labs.run import environment, fields, run_lock, usage
from labs.run.catalogue import Lab
from labs.run.errors import LabError, quoted
from labs.run.options import LAUNCH, Options
from labs.run.paths import labs_command

TYPES: dict[type, tuple[Callable[[str], Any], str]] = {
    int: (usage.whole_number, "INT"), float: (usage.number, "FLOAT"), str: (str, "STR"), Path: (Path, "PATH")}
"""The function that reads an option's value, and the name of that value in the help, by type."""


def parse_run(lab: Lab, arguments: Sequence[str], launches: bool = False) -> tuple[Any, Options]:
    """Parse the command line of a run; the defaults of a resumed run are the settings with which it was started.

    Arguments and errors are those of `parse`.
    """
    config, options = parse(lab, arguments, launches)
    run = run_lock.resumed(lab.name, options)
    begun = run.resume and run.name and run_lock.started_with(run.results_root / lab.name / run.name)
    return parse(lab, arguments, launches, begun=begun) if begun else (config, options)


def parse(lab: Lab, arguments: Sequence[str], launches: bool = False, known: Sequence[str] = (),
          begun: Mapping[str, Any] = MappingProxyType({})) -> tuple[Any, Options]:
    """Parse a lab's command line into its Config and the run's Options.

    Args:
        lab: The lab.
        arguments: The command line without the options of the launch.
        launches: Whether --help shows the options of the launch as well.
        known: Other options of the command, suggested for a misspelled one.
        begun: The "config" and "options" of a run to resume, which become the defaults; see `run_lock.started_with`.

    Raises:
        LabError: The command line is wrong.
    """
    saved = {**begun.get("config", {}), **begun.get("options", {})}
    preset, _ = split_preset(lab, arguments, saved.get("preset", Options.preset))
    usage.refuse_empty(arguments)
    prog = f"labs run {lab.name}"
    parser = usage.Parser(prog, usage=f"{prog} [OPTIONS]", description=lab.description, formatter_class=_Help)
    parser.known = known
    if launches:
        add_launch_options(parser.add_argument_group("launch options"))
    else:
        _refuse_launch_options(lab, arguments)
    add_options(parser, lab, preset)
    # argparse reads a default that is text like a value of the command line.
    parser.set_defaults(**{name: value for name, value in saved.items() if value is not None})
    given = vars(parser.parse_args(arguments))
    config, options = (
        dataclasses.replace(defaults, **{field.name: given[field.name] for field in dataclasses.fields(defaults)
                                         if field.name in given})
        for defaults in (lab.presets[preset], Options()))
    fields.check(config)
    fields.check(options)
    return config, options


class _Help(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """Keeps the lines of the lab's description, and shows the defaults."""


def add_options(parser: argparse.ArgumentParser, lab: Lab, preset: str = "demo") -> None:
    """Add the options of a lab's Config and of every run to a parser, with the defaults of a preset."""
    experiment = parser.add_argument_group("experiment options")
    experiment.add_argument("--preset", choices=tuple(lab.presets), default=preset,
                            help=_docstrings(Options)["preset"])
    defaults = lab.presets[preset]
    _add_fields(experiment, dataclasses.replace(defaults, seed=environment.default_seed(defaults.seed)))
    _add_fields(parser.add_argument_group("run options"), Options())


def add_launch_options(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the options of `labs run` that start the workers."""
    parser.add_argument("--workers", type=usage.count, metavar="N", default=argparse.SUPPRESS, help=LAUNCH["workers"])
    parser.add_argument("--oversubscribe", action="store_true", default=argparse.SUPPRESS, help=LAUNCH["oversubscribe"])


def _add_fields(group: argparse._ArgumentGroup, defaults: Any) -> None:
    """Add an option for each field of a dataclass: its type, its default, and its docstring as the help."""
    settings = type(defaults)
    helps = _docstrings(settings)  # type: ignore[arg-type]  # A class can be hashed.
    for name, hint in typing.get_type_hints(settings).items():
        if settings is Options and name == "preset":  # A lab has its own.
            continue
        option, value = "--" + name.replace("_", "-"), getattr(defaults, name)
        if type(None) in typing.get_args(hint):  # str | None
            (hint,) = set(typing.get_args(hint)) - {type(None)}
        about: dict[str, Any] = {"help": helps.get(name, "").replace("%", "%%"),
                                 "default": argparse.SUPPRESS if value is None else value}
        if hint is bool:
            group.add_argument(option, action=argparse.BooleanOptionalAction, **about)
        elif typing.get_origin(hint) is Literal:
            group.add_argument(option, choices=typing.get_args(hint), **about)
        else:
            read, metavar = TYPES[hint]
            group.add_argument(option, type=read, metavar=metavar, **about)


@functools.cache  # The source file may change during a run, and the run parses options again at its end.
def _docstrings(settings: type) -> dict[str, str]:
    """Return the docstring below each field of a dataclass, in one line; Python itself does not keep them."""
    definition: Any = ast.parse(textwrap.dedent(inspect.getsource(settings))).body[0]
    return {field.target.id: " ".join(text.value.value.split()) for field, text in itertools.pairwise(definition.body)
            if [type(field), type(text)] == [ast.AnnAssign, ast.Expr]}


def _refuse_launch_options(lab: Lab, arguments: Sequence[str]) -> None:
    """Refuse `python -m labs.lab10_caltech --workers 2`: this program is one worker and starts none."""
    for name in (word.partition("=")[0] for word in arguments):
        if name.startswith("--") and name[2:] in LAUNCH:
            raise LabError(f"{name} is for `labs run`, which starts the workers: "
                           f"{labs_command()} run {lab.name} {shlex.join(arguments)}")


def to_argv(config: Any) -> list[str]:
    """Return the command-line options from which `parse` makes a Config."""
    argv = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        option = field.name.replace("_", "-")
        # A student's runs have another default seed, and a Config keeps its own.
        if value == field.default and not (field.name == "seed" and environment.student_id()):
            continue
        if isinstance(value, bool):
            argv.append(f"--{option}" if value else f"--no-{option}")
        else:
            argv += [f"--{option}", str(value)]
    return argv


def split_preset(lab: Lab, arguments: Sequence[str], default: str = Options.preset) -> tuple[str, list[str]]:
    """Split `--preset NAME` from the arguments; the preset determines the defaults of all other options."""
    parser = usage.Parser(f"labs run {lab.name}", add_help=False)
    parser.add_argument("--preset", default=default)
    known, rest = parser.parse_known_args(arguments)
    if known.preset not in lab.presets:
        raise LabError(f"unknown preset {quoted(known.preset)}; {lab.name} has: {', '.join(lab.presets)}")
    return known.preset, rest
