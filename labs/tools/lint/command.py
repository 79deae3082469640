"""Find implausible figures in your results, or in a table typed by hand."""

import argparse
import sys

from labs.lint import rules, tables
from labs.results import records
from labs.run import command_line
from labs.run.errors import ERROR_PREFIX, LabError, one_line, plural
from labs.run.paths import results_dir


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the paths and the template."""
    parser.description = ("List each implausible row of your results with the reason.\n"
                          "The exit code is 1 if there is one, or if a path could not be checked.")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (f"columns of a table; all are optional, but give at least one figure:\n{', '.join(tables.COLUMNS)}"
                     f"\n\n{tables.MEANINGS}")
    parser.add_argument("paths", nargs="*", type=command_line.path, metavar="RESULTS | FILE.csv",
                        help="results folders and tables typed by hand; default: your results folder")
    parser.add_argument("--template", action="store_true",
                        help="print an empty table to fill in: labs lint --template > mine.csv")


def main(args: argparse.Namespace) -> int:
    """Print the findings, or the template, and return the exit code."""
    if args.template:
        print(",".join(tables.COLUMNS))
        return 0
    failed = False
    for path in args.paths or [results_dir()]:
        try:
            recorded = path.is_dir()
            rows = tables.from_records(records.read_all(root=path)) if recorded else tables.read(path)
            if not rows:
                raise LabError(f"{path} holds no record; `labs run lab10_caltech --workers 2` makes one")
            found = [one_line(str(finding)) for finding in rules.judge(rows)]
            failed |= bool(found)
            print(f"{path if recorded else path.name}: {plural(len(rows), 'record' if recorded else 'row')}",
                  *(found or ["nothing implausible"]), sep="\n")
        except LabError as problem:
            failed = True
            print(f"{ERROR_PREFIX}{one_line(problem)}", file=sys.stderr)
    return int(failed)
