"""Show the progress of a run: throughput, slow workers, busy nodes."""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Sequence

from labs.results import records, run_record
from labs.run import usage
from labs.run.paths import results_dir
from labs.tools.watch import screen, status
from labs.tools.watch.status import Status, Watcher

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
    watcher = Watcher(status.choose(args.run, args.results))
    now = watcher.look()
    if status.SILENT < now.silent < math.inf and not now.finished:  # Or the clocks differ.
        time.sleep(status.SECOND_LOOK)
        now = watcher.look()
    live = sys.stdout.isatty() and not args.once
    try:
        height = _draw(_lines(now, watcher), 0, live)
        while live and not now.over:
            time.sleep(PERIOD)
            now = watcher.look()
            height = _draw(_lines(now, watcher), height, live)
    except KeyboardInterrupt:
        print("\r\x1b[Kno longer watching; the run goes on")
        return 0
    return int(now.over and not now.finished)


def _lines(now: Status, watcher: Watcher) -> list[str]:
    """Return the lines to show; for a finished run with the table that it printed."""
    if not now.finished:
        return screen.lines(now)
    return [*screen.lines(now), "", *run_record.closing(records.read(watcher.folder)).split("\n")]


def _draw(lines: Sequence[str], height: int, live: bool) -> int:
    """Print lines over those drawn before, cut to the terminal, and return their number.

    Nothing of the terminal is changed that would have to be restored.

    Args:
        height: The number of lines drawn before.
    """
    if not live:
        print("\n".join(lines))
        return 0
    columns, rows = os.get_terminal_size(sys.stdout.fileno())
    shown = [line[: (columns or 80) - 1] for line in lines[: (rows or 24) - 1]]
    sys.stdout.write(f"\x1b[{height}A" * bool(height) + "".join(f"{line}\x1b[K\n" for line in shown) + "\x1b[J")
    sys.stdout.flush()
    return len(shown)
