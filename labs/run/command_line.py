"""Command-line options from a lab's Config, and a Config's command line.

    python -m labs.lab10_caltech --preset paper --batch-size 64
"""

import argparse
import ast
import dataclasses
import inspect
import itertools
import textwrap
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from labs.run import environment, fields, run_lock, usage
from labs.run.catalogue import Lab
from labs.run.options import Options


def parse(lab: Lab, words: Sequence[str], launches: bool = False) -> tuple[Any, Options]:
    """Parse a lab's command line into its Config and the run's Options; a resumed run keeps those of its start.

    Args:
        lab: The lab.
        words: The command line without the options of the launch.
        launches: Whether --help shows the options of the launch as well.

    Raises:
        LabError: The command line is wrong.
    """
    given = given_options(lab, words, launches)
    run = run_lock.resumed(lab.name, _replace(Options(), given))
    if run.resume and run.name and (begun := run_lock.started_with(run.results_root / lab.name / run.name)):
        saved = begun["config"] | begun["options"]
        given = {name: value for name, value in saved.items() if value is not None} | given
    default = lab.presets[given.get("preset", Options.preset)]
    config = _replace(dataclasses.replace(default, seed=environment.default_seed(default.seed)), given)
    options = _replace(Options(), given)
    fields.check(config)
    fields.check(options)
    return config, options


def _replace(defaults: Any, given: dict[str, Any]) -> Any:
    """Return a dataclass with the given values in place of the defaults."""
    names = {field.name for field in dataclasses.fields(defaults)}
    return dataclasses.replace(defaults, **{name: value for name, value in given.items() if name in names})


def given_options(lab: Lab, words: Sequence[str], launches: bool = False, known: Iterable[str] = ()) -> dict[str, Any]:
    """Return the options that a lab's command line has, by the name of the field; arguments as for `parse`.

    Args:
        known: Other options of the command, which may be what a misspelled one means.
    """
    prog = f"labs run {lab.name}"
    parser = usage.Parser(prog, usage=f"{prog} [OPTIONS]", description=lab.description,
                          argument_default=argparse.SUPPRESS, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.known = known
    if launches:
        add_launch_options(parser.add_argument_group("launch options"))
    preset = next((name for name in lab.presets if name in words), Options.preset)  # --help shows its values.
    experiment = parser.add_argument_group("experiment options")
    experiment.add_argument("--preset", choices=tuple(lab.presets), help=_helps(Options)["preset"])
    _add_fields(experiment, lab.presets[preset])
    _add_fields(parser.add_argument_group("run options"), Options())
    return vars(parser.parse_args(words))


def add_launch_options(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the options of `labs run` that start the workers."""
    parser.add_argument("--workers", type=usage.count, metavar="N",
                        help="Number of workers; by default one per task in a Slurm job, else one per GPU, else one.")
    add_oversubscribe(parser)


def add_oversubscribe(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the option of all commands that start workers."""
    parser.add_argument("--oversubscribe", action="store_true", help="Allow more workers than cores.")


def _add_fields(group: argparse._ArgumentGroup, defaults: Any) -> None:
    """Add an option for each field of a dataclass: its type, its default, and its help."""
    helps = _helps(type(defaults))
    for name, hint in typing.get_type_hints(type(defaults)).items():
        if isinstance(defaults, Options) and name == "preset":  # A lab has its own.
            continue
        value, text = getattr(defaults, name), helps.get(name, "").replace("%", "%%")
        text += "" if value is None else f" (default: {value})"
        group.add_argument("--" + name.replace("_", "-"), help=text, default=argparse.SUPPRESS, **_reader(hint))


def _reader(hint: Any) -> dict[str, Any]:
    """Return how argparse reads a value of this type."""
    if type(None) in typing.get_args(hint):  # str | None
        (hint,) = set(typing.get_args(hint)) - {type(None)}
    if hint is bool:
        return {"action": argparse.BooleanOptionalAction}
    if typing.get_origin(hint) is Literal:
        return {"choices": typing.get_args(hint)}
    return {"type": usage.path if hint is Path else hint, "metavar": hint.__name__.upper()}


def _helps(settings: type) -> dict[str, str]:
    """Return the help of each field: that of its type, or the docstring below it, which Python itself does not keep."""
    definition: Any = ast.parse(textwrap.dedent(inspect.getsource(settings))).body[0]
    return fields.metadata(settings, str) | {
        field.target.id: " ".join(text.value.value.split()) for field, text in itertools.pairwise(definition.body)
        if [type(field), type(text)] == [ast.AnnAssign, ast.Expr]}


def to_argv(config: Any) -> list[str]:
    """Return the command-line options from which `parse` makes a Config."""
    argv = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        # A student's runs have another default seed, and a Config keeps its own.
        if value == field.default and not (field.name == "seed" and environment.student_id()):
            continue
        option = field.name.replace("_", "-")
        argv += [f"--{'' if value else 'no-'}{option}"] if isinstance(value, bool) else [f"--{option}", str(value)]
    return argv
