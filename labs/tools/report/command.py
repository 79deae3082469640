"""Write all results as one HTML page: tables, plots, warnings."""

import argparse

from labs.run import command_line
from labs.run.paths import format_path, results_dir
from labs.tools.report import page


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `labs report`."""
    parser.description = "Write all results as one HTML page that needs no network and no other file."
    parser.add_argument("--results", type=command_line.path, default=results_dir(),
                        help="the results folder, which gets the page report.html")


def main(args: argparse.Namespace) -> None:
    """Write the page and print its path and its address for a browser."""
    output = args.results / "report.html"
    page.write(args.results, output)
    print(format_path(output.absolute()), output.absolute().as_uri(), sep="\n")
