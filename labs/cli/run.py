"""`labs run LAB`: start a lab on several workers."""

from __future__ import annotations

import argparse
import sys

from labs.launch import local
from labs.run import options, usage


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the launch options; labs.run.command_line adds the lab's own."""
    parser.description = ("Run a lab on several workers. All other options are the lab's: "
                          "`labs run LAB --help` shows them.")
    parser.add_argument("-h", "--help", action="store_true",
                        help="show this help, or after LAB the options of the lab")
    parser.add_argument("--workers", type=usage.count, metavar="N", help=options.LAUNCH["workers"])
    parser.add_argument("--oversubscribe", action="store_true", help=options.LAUNCH["oversubscribe"])


def main(args: argparse.Namespace) -> None:
    """Start the workers and wait for their end."""
    if args.lab is None:
        args.parser.print_help()
        return
    words = args.lab_options + ["--help"] * args.help
    try:
        local.run(args.lab, words, args.workers, args.oversubscribe, announce=True)
    except local.Finished:  # Exit code 0: a job that ends with an error goes back into the queue.
        print("labs: the run had already finished", file=sys.stderr)
