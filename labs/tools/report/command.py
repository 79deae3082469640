"""Write all results as one HTML page: tables, plots, the course reports' figures."""

from __future__ import annotations

import argparse
import webbrowser

from labs.run import atomic, terminal, usage
from labs.run.errors import LabError
from labs.run.paths import results_dir, shown
from labs.tools.report import page


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `labs report`."""
    parser.description = "Write all results as one HTML page that needs no network and no other file."
    parser.add_argument("--results", type=usage.path, default=results_dir(), help="the results folder")
    parser.add_argument("--output", type=usage.path,
                        help="the page to write; default: report.html in the results folder")
    parser.add_argument("--markdown", type=usage.path,
                        help="write the report as Markdown too, with a folder of plots beside it")
    parser.add_argument("--open", action="store_true", help="open the page in a browser")


def main(args: argparse.Namespace) -> None:
    """Write the page and print its path."""
    output = args.output or args.results / "report.html"
    atomic.refuse_special(output, "--output")
    if args.markdown:
        atomic.refuse_special(args.markdown, "--markdown")
    with usage.writing_to("--output"), terminal.ticking("labs: drawing the plots,"):
        page.write(args.results, output, args.markdown)
    print("\n".join(shown(path.absolute()) for path in (output, args.markdown) if path))
    address = output.absolute().as_uri()
    print(address)
    if args.open and not webbrowser.open(address):
        raise LabError("cannot start a browser here; open the page above yourself, or copy it to a machine with one")
