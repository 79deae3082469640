"""Check whether this machine can run the labs; names a cure for each problem."""

from __future__ import annotations

import argparse

from labs.tools.check import runner


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `labs check`."""
    parser.description = (
        "Check whether this machine can run the labs. Prints a line for each check: ok, or a cause and its cure. "
        "Something that a laptop may lack, such as a GPU, is reported as absent, not as an error. The exit code is 1 "
        "if a check fails.")
    parser.add_argument("--quick", action="store_true", help="skip the last check, in which two workers train a step")
    parser.add_argument("--only", action="append", default=[], metavar="NAME",
                        help="run this check alone; can be repeated: " + ", ".join(runner.CHECKS))
    parser.add_argument("--json", action="store_true", help="print a JSON object for each check")


def main(args: argparse.Namespace) -> int:
    """Run the checks and return the exit code."""
    return runner.main(args.only, args.quick, args.json)
