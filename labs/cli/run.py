"""`labs run LAB`: start a lab on several workers."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from labs.launch import local, mpirun
from labs.run import catalogue, cluster_state, command_line
from labs.run.paths import labs_command
from labs.run.text import plural


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the launch options; labs.run.command_line adds the lab's own."""
    parser.description = ("Run a lab on several workers. All other options are the lab's: "
                          "`labs run LAB --help` shows them.")
    parser.add_argument("-h", "--help", action="store_true",
                        help="show this help, or after LAB the options of the lab")
    command_line.add_launch_options(parser)
    parser.set_defaults(workers=None, oversubscribe=False)


def main(args: argparse.Namespace) -> None:
    """Start the workers and wait for their end."""
    if args.lab is None:
        args.parser.print_help()
        return
    words = args.lab_options + ["--help"] * args.help
    try:
        record = local.run(args.lab, words, args.workers, args.oversubscribe, announce=True)
    except local.InterruptedAfterRecord:  # Exit code 0: a job that ends with an error goes back into the queue.
        print("labs: the run had already finished", file=sys.stderr)
    else:
        print(_next(record, words))


def _next(record: dict[str, Any], words: Sequence[str]) -> str:
    """Return the end of a run's output: commands to paste, each with its purpose.

    Args:
        record: The run's record.
        words: Its options, of which --results stays.
    """
    lab = catalogue.load_lab(record["lab"])
    config = lab.Config(**record["config"])
    results = command_line.parse(lab, words)[1].results
    root = ["--results", str(results)] if results else []
    commands = [(["report", *root], "all runs on one page"), (["notebook"], f"{lab.name}.ipynb")]
    if other := _other(lab.one_worker(config), record["layout"]["size"]):
        again = [*(["cluster"] if cluster_state.inside() else []), "run", lab.name, "--workers", str(other),
                 *command_line.to_argv(config), *root]
        commands.append((again, f"the same on {plural(other, 'worker')}"))
    lines = [f"  {labs_command()} {shlex.join(command)}" for command, _ in commands]
    width = max(map(len, lines[:2]))
    explained = [f"{line:{width}}  # {why}" for line, (_, why) in zip(lines, commands, strict=True)]
    return "\n".join(["", "Next:", *explained])


def _other(one_worker: bool, size: int) -> int:
    """Return the number of workers to compare a run with; 0 if there is none here."""
    if size > 1:
        return 1
    return 2 if mpirun.slots() > 1 and not one_worker else 0
