"""The command line: its parser, whose errors are one line; options from a lab's Config, and a Config's command line.

    python -m labs.lab10_caltech --preset paper --batch-size 64
"""

import argparse
import ast
import dataclasses
import difflib
import inspect
import itertools
import textwrap
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

from labs.run import environment, fields
from labs.run.catalogue import Lab
from labs.run.errors import LabError
from labs.run.fields import Options

LAUNCH_OPTIONS = ("--workers", "--oversubscribe")  # The options of `labs run` that are not the lab's.


class Parser(argparse.ArgumentParser):
    """An argparse parser whose errors are LabErrors, which a notebook shows too; options are never abbreviated."""

    known: Iterable[str] = ()  # Options of other parsers that may be meant, too.

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs | {"allow_abbrev": False})

    @property
    def options(self) -> list[str]:
        """The options of this parser."""
        return list(self._option_string_actions)

    def error(self, message: str) -> NoReturn:
        """Raise argparse's message as a LabError; suggest an option for an unknown one."""
        _, unknown, words = message.partition("unrecognized arguments: ")
        similar = suggestion(words.split()[0].partition("=")[0], [*self.options, *self.known]) if unknown else ""
        raise LabError(f"{message}{similar}; see `{self.prog} --help`")


def count(text: str) -> int:
    """Return a whole number of at least 1; an argparse type."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return int(text)


def counts(text: str) -> tuple[int, ...]:
    """Return the numbers of "1,2,4"; an argparse type."""
    return tuple(map(count, text.split(",")))


def path(text: str) -> Path:
    """Return a path, with `~` replaced by the home folder; an argparse type."""
    if not text:  # As in `--results "$DIR"`, if the variable is not set.
        raise argparse.ArgumentTypeError("the path is empty")
    return Path(text).expanduser()


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean X?" if a known word is similar, otherwise an empty string."""
    close = difflib.get_close_matches(word.lower(), list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def parse(lab: Lab, words: Sequence[str]) -> tuple[Any, Options]:
    """Parse a lab's command line into its Config and the run's Options; a resumed run keeps those of its start."""
    from labs.run import run_lock  # Here: `labs check` has to run where no package is installed.

    given = given_options(lab, words)
    run = run_lock.resumed(lab.name, _replace(Options(), given))
    if run.resume and run.name and (begun := run_lock.started_with(run.results_root / lab.name / run.name)):
        saved = begun["config"] | begun["options"]
        given = {name: value for name, value in saved.items() if value is not None} | given
    default = lab.presets[given.get("preset", Options.preset)]
    student = environment.student_id()
    seed = environment.personal_seed(student) if student else default.seed
    config, options = _replace(default, {"seed": seed} | given), _replace(Options(), given)
    fields.check(config)
    fields.check(options)
    return config, options


def _replace(defaults: Any, given: dict[str, Any]) -> Any:
    """Return a dataclass with the given values in place of the defaults."""
    names = {field.name for field in dataclasses.fields(defaults)}
    return dataclasses.replace(defaults, **{name: value for name, value in given.items() if name in names})


def given_options(lab: Lab, words: Sequence[str], known: Iterable[str] = LAUNCH_OPTIONS) -> dict[str, Any]:
    """Return the options that a lab's command line has, by the name of the field; `known` as in Parser."""
    prog = f"labs run {lab.name}"
    parser = Parser(prog, usage=f"{prog} [--workers N] [--oversubscribe] [OPTIONS]", description=lab.description,
                    argument_default=argparse.SUPPRESS, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.known = known
    preset = next((name for name in lab.presets if name in words), Options.preset)  # --help shows its values.
    experiment = parser.add_argument_group("experiment options")
    experiment.add_argument("--preset", choices=tuple(lab.presets), help="Where the other defaults come from.")
    _add_fields(experiment, lab.presets[preset])
    _add_fields(parser.add_argument_group("run options"), Options())
    return vars(parser.parse_args(words))


def add_oversubscribe(parser: argparse.ArgumentParser) -> None:
    """Add the option of all commands that start workers."""
    parser.add_argument("--oversubscribe", action="store_true", help="allow more workers than cores")


def _add_fields(group: argparse._ArgumentGroup, defaults: Any) -> None:
    """Add an option for each field of a dataclass: its type, its default, and its help."""
    helps = _helps(type(defaults))
    for name, hint in typing.get_type_hints(type(defaults)).items():
        if isinstance(defaults, Options) and name == "preset":  # A lab has its own.
            continue
        value, text = getattr(defaults, name), helps.get(name, "").replace("%", "%%")
        text += "" if value is None else f" (default: {value})"
        group.add_argument("--" + name.replace("_", "-"), help=text, **_reader(hint))


def _reader(hint: Any) -> dict[str, Any]:
    """Return how argparse reads a value of this type."""
    if type(None) in typing.get_args(hint):  # str | None
        (hint,) = set(typing.get_args(hint)) - {type(None)}
    if hint is bool:
        return {"action": argparse.BooleanOptionalAction}
    if typing.get_origin(hint) is Literal:
        return {"choices": typing.get_args(hint)}
    return {"type": path if hint is Path else hint, "metavar": hint.__name__.upper()}


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
