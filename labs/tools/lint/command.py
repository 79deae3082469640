"""Find implausible figures in your results, or in a table typed by hand."""

from __future__ import annotations

import argparse
import sys

from labs.lint import checker, tables
from labs.run import usage
from labs.run.errors import ERROR_PREFIX, LabError
from labs.run.paths import results_dir
from labs.run.text import one_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the paths and the template."""
    parser.description = ("List each implausible row of your results with the reason.\n"
                          "The exit code is 1 if there is one, or if a path could not be checked.")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "\n".join(["the columns of a table; all are optional, but give at least one figure:",
                               *(f"  {name:21} {meaning}" for name, meaning in tables.COLUMNS.items())])
    parser.add_argument("paths", nargs="*", type=usage.path, metavar="RESULTS | FILE.csv",
                        help="results folders and tables typed by hand; default: your results folder")
    parser.add_argument("--template", action="store_true",
                        help="print an empty table to fill in: labs lint --template > mine.csv")


def main(args: argparse.Namespace) -> int:
    """Print the findings, or the template, and return the exit code."""
    if args.template:
        print(",".join(tables.COLUMNS))
        return 0
    failed = False
    for verdict in checker.verdicts(args.paths or [results_dir()]):
        if isinstance(verdict, LabError):
            failed = True
            print(f"{ERROR_PREFIX}{one_line(verdict)}", file=sys.stderr)
        else:
            where, findings = verdict
            failed = failed or bool(findings)
            print(*map(one_line, (where, *([*map(str, findings)] or ["nothing implausible"]))), sep="\n")
    return int(failed)
