"""Show the progress of a run: throughput, slow workers, busy nodes."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

from labs.results import records, run_record
from labs.run import usage
from labs.run.paths import results_dir
from labs.tools.watch import screen, status

PERIOD = 2.0
"""Seconds between two screens."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `labs watch`."""
    parser.description = ("Show the progress of a run, from the login node or a second terminal. It only reads files. "
                          "Ctrl-C ends it, and the run goes on.")
    parser.add_argument("run", nargs="?", metavar="RUN",
                        help="name of a run, or of a lab for its newest run; default: the newest that is running")
    parser.add_argument("--results", type=usage.path, default=results_dir(), help="the results folder")
    parser.add_argument("--once", action="store_true",
                        help="show it once and exit; the default if the output is not a terminal")


def main(args: argparse.Namespace) -> int:
    """Show the run until it ends; return 1 if it has ended without a record.

    Raises:
        LabError: There is no such run, or its folder is gone.
    """
    watcher, height = status.choose(args.run, args.results), 0
    live = sys.stdout.isatty() and not args.once
    try:
        while True:
            now = watcher.look()
            lines = screen.lines(now)
            if not live:
                print(*lines, sep="\n")
                break
            height = _draw(lines, height)
            if now.over:
                break
            time.sleep(PERIOD)
    except KeyboardInterrupt:
        print("\r\x1b[Kno longer watching; the run goes on")
        return 0
    if now.finished:
        print(f"\n{run_record.closing(records.read(watcher.folder))}")
    return int(now.over and not now.finished)


def _draw(lines: Sequence[str], height: int) -> int:
    """Print lines over those drawn before, cut to the terminal, and return their number.

    Nothing of the terminal is changed that would have to be restored.

    Args:
        height: The number of lines drawn before.
    """
    columns, rows = os.get_terminal_size(sys.stdout.fileno())
    shown = [line[: (columns or 80) - 1] for line in lines[: (rows or 24) - 1]]
    sys.stdout.write(f"\x1b[{height}A" * bool(height) + "".join(f"{line}\x1b[K\n" for line in shown) + "\x1b[J")
    sys.stdout.flush()
    return len(shown)
