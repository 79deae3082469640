"""Completion of the command line, for bash and zsh: made from what the commands' own help names.

    source <(labs completion bash)
"""

from __future__ import annotations

import contextlib
import io
import shlex
import typing
from collections.abc import Iterable, Iterator

from labs.cli import commands
from labs.datasets import registry
from labs.run import catalogue, command_line, usage
from labs.run.lab import Lab
from labs.run.options import Options

BASH = """\
# Completion of `labs`, from `labs completion {name}`: source it.
_labs() {{
    local line=${{COMP_LINE:0:COMP_POINT}} choices
    local word=${{line##* }}
    local before=${{line%"$word"}}
    case "${{before#* }}" in
{cases}
    esac
    COMPREPLY=($(compgen -W "$choices" -- "$word"))
}}
complete -o default -F _labs labs
"""
"""Whatever has no words of its own is completed as a file's name."""
ZSH = "autoload -Uz compinit bashcompinit && compinit && bashcompinit\n" + BASH
SHELLS = {"bash": BASH, "zsh": ZSH}


def script(shell: str) -> str:
    """Return the program that teaches a shell ("bash" or "zsh") to complete `labs`."""
    cases = "\n".join(f"        {before}) choices={shlex.quote(' '.join(words))} ;;" for before, words in _words())
    return SHELLS[shell].format(name=shell, cases=cases)


def _words() -> Iterator[tuple[str, Iterable[str]]]:
    """Yield patterns of what stands before the cursor, and what may follow; of several patterns the first holds."""
    for name in catalogue.lab_names():
        lab = catalogue.load_lab(name)
        started = [f'"{verb} {spelling} "*' for verb in ("run", "sweep") for spelling in _spellings(name)]
        choices = dict(_choices(lab)) | {"preset": lab.presets}
        for option, values in choices.items():
            yield "|".join(f'{line}"--{option} "' for line in started), values
        for verb in ("run", "sweep"):
            pattern = "|".join(line for line in started if line.startswith(f'"{verb} '))
            yield pattern, [*_options(verb), *command_line.flags(lab.Config), *command_line.flags(Options), "--preset"]
    labs = catalogue.lab_names()
    for verb in ("fetch", "verify"):
        yield f'"data {verb} "', registry.DATASETS
    yield '"data "', ["list", "fetch", "verify"]
    yield '"completion "', SHELLS
    for name in commands.COMMANDS:
        yield f'"{name} "*', [*_options(name), *(labs if name in ("run", "sweep", "results", "exercises") else [])]
    yield '""', commands.COMMANDS


def _spellings(name: str) -> Iterator[str]:
    """Yield how a lab may be named on a command line, as parts of a shell pattern: "lab02"*, lab2, 02, 2."""
    stem = name.partition("_")[0]
    number = stem.removeprefix("lab")
    yield f'{stem}"*"'
    yield from sorted({"lab" + number.lstrip("0"), number, number.lstrip("0")})


def _options(name: str) -> list[str]:
    """Return the options that the help of a command names."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        commands.COMMANDS[name](["--help"])
    return usage.options(said.getvalue())


def _choices(lab: Lab) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the options of a lab that take one of some words, with these."""
    for name, kind in typing.get_type_hints(lab.Config).items():
        if typing.get_origin(kind) is typing.Literal:
            yield name.replace("_", "-"), typing.get_args(kind)
