"""`labs completion`: a script that completes commands, labs and their options in bash."""

from __future__ import annotations

import argparse

import shtab

from labs.cli import commands
from labs.run import catalogue, command_line, usage

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
def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the shell."""
    parser.description = ("Print a script that completes commands, labs and their options. "
                          "Source it: source <(labs completion bash)")
    parser.add_argument("shell", choices=["bash"], help="the shell that sources the script")


def main(args: argparse.Namespace) -> None:
    """Print the script."""
    print(script(), end="")


def script() -> str:
    """Return the script for bash."""
    text = shtab.complete(commands.parser(commands.summaries(), _offer_labs), "bash")
    numbers = " ".join(f"{'|'.join(_short_names(name))}) echo {name} ;;" for name in catalogue.lab_names())
    return BASH.format(script=text, numbers=numbers, take_labs="|".join(commands.TAKE_LAB_OPTIONS))


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
    own = usage.Parser(parents=[parser], add_help=False)  # A copy, without the labs.
    labs = parser.add_subparsers(metavar="LAB")
    for name in catalogue.lab_names():
        lab = catalogue.load_lab(name)
        command_line.add_options(labs.add_parser(name, parents=[own], add_help=False, help=lab.title), lab)
