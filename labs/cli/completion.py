"""`labs completion`: a script that completes commands, labs and their options in bash or zsh."""

from __future__ import annotations

import argparse
import shlex
import typing
from typing import Literal

import shtab

from labs.cli import commands
from labs.run import catalogue, usage
from labs.run.lab import Lab
from labs.run.options import Options

BASH = """\
{script}
_labs_of_number() {{ case $1 in {numbers} *) echo "$1" ;; esac; }}
_labs() {{
    if ((COMP_CWORD > 2)) && [[ ${{COMP_WORDS[*]:1:2}} =~ ^cluster\\ ({take_labs})$ ]]; then
        COMP_WORDS=("${{COMP_WORDS[0]}}" "${{COMP_WORDS[@]:2}}")
        ((COMP_CWORD--))
    fi
    ((COMP_CWORD < 3)) || COMP_WORDS[2]=$(_labs_of_number "${{COMP_WORDS[2]}}")
    _shtab_labs
}}
complete -o default -F _labs labs
"""
"""`labs cluster run` is completed like `labs run`. What matches nothing is completed as a file name (-o default)."""
ZSH = """\
(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit; }}
eval {quoted}
_labs_of_number() {{ case $1 in {numbers} *) echo "$1" ;; esac; }}
_labs() {{
    if (( CURRENT > 3 )) && [[ $words[2,3] =~ '^cluster ({take_labs})$' ]]; then
        words[2]=()
        (( CURRENT-- ))
    fi
    (( CURRENT < 4 )) || words[3]=$(_labs_of_number "$words[3]")
    _shtab_labs || _files
}}
compdef _labs labs
"""
"""shtab's script would call its function at once, instead of defining it, if it were not inside `eval`."""
SHELLS = {"bash": BASH, "zsh": ZSH}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the shell."""
    parser.description = ("Print a script that completes commands, labs and their options. "
                          "Source it: source <(labs completion bash)")
    parser.add_argument("shell", choices=tuple(SHELLS), help="the shell that sources the script")


def main(args: argparse.Namespace) -> None:
    """Print the script."""
    print(script(args.shell), end="")


def script(shell: str) -> str:
    """Return the script for a shell, "bash" or "zsh"."""
    text = shtab.complete(commands.parser(commands.summaries(), _offer_labs), shell)
    numbers = " ".join(f"{'|'.join(_short_names(name))}) echo {name} ;;" for name in catalogue.lab_names())
    return SHELLS[shell].format(script=text, quoted=shlex.quote(text), numbers=numbers,
                                take_labs="|".join(commands.TAKE_LAB_OPTIONS))


def _short_names(name: str) -> list[str]:
    """Return the short names of a lab: 02, 2, lab02 and lab2."""
    stem = name.partition("_")[0]
    number = stem.removeprefix("lab")
    return sorted({number, number.lstrip("0"), stem, "lab" + number.lstrip("0")})


def _offer_labs(command: str, parser: argparse.ArgumentParser) -> None:
    """Add the labs as values of LAB; in a command that takes a lab's options, as subcommands with these options."""
    if command not in commands.TAKE_LAB_OPTIONS:
        parser.add_argument("lab", nargs="?", choices=catalogue.lab_names())
        return
    launch = usage.Parser(parents=[parser], add_help=False)  # A copy, without the labs.
    labs = parser.add_subparsers(metavar="LAB")
    for name in catalogue.lab_names():
        lab = catalogue.load_lab(name)
        labs.add_parser(name, parents=[launch, _lab_options(lab)], add_help=False, help=lab.title)


def _lab_options(lab: Lab) -> argparse.ArgumentParser:
    """Return a parser with a lab's options. At run time tyro makes them; for twelve labs that would take seconds."""
    parser = usage.Parser(add_help=False)
    parser.add_argument("--preset", choices=tuple(lab.presets))
    for settings in (lab.Config, Options):
        for name, kind in typing.get_type_hints(settings).items():
            option = "--" + name.replace("_", "-")
            if kind is bool:
                parser.add_argument(option, action=argparse.BooleanOptionalAction)
            else:
                choices = typing.get_args(kind) if typing.get_origin(kind) is Literal else None
                parser.add_argument(option, choices=choices)
    return parser
