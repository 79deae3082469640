"""`labs results`: the finished runs, as a table or as a CSV file."""

from __future__ import annotations

import argparse

from labs.results import listing
from labs.run import atomic, usage
from labs.run.paths import results_dir
from labs.run.text import plural, printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --csv and --reference."""
    parser.description = "Show the runs in the results folder, oldest first: all of them, or those of one lab."
    parser.add_argument("--csv", type=usage.path, metavar="FILE", help="write everything in the records to a CSV file, "
                                                                 "a row for each run")
    parser.add_argument("--reference", metavar="NAME",
                        help="show the reference runs of data/reference_runs/NAME, such as two-cores")


def main(args: argparse.Namespace) -> None:
    """Print the table, or write the CSV file."""
    runs = listing.load(args.lab, results_dir(), args.reference)
    if not args.csv:
        print(listing.table(runs))
        return
    with usage.writing_to("--csv"):
        atomic.write_text(args.csv, listing.csv(runs))
    print(f"{printable(args.csv)}: {plural(len(runs), 'run')}, {plural(len(runs.columns), 'column')}")
