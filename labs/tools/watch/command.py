"""Show the progress of a run: each worker's epoch, step and waiting time."""

import argparse
import sys
import time
from pathlib import Path

from labs.run import catalogue, command_line, heartbeat, terminal
from labs.run.errors import LabError, printable, quoted
from labs.run.heartbeat import Heartbeat
from labs.run.paths import format_path, results_dir

PERIOD = 2.0  # Seconds between two tables.
HEADING = ["rank", "node", "epoch", "step", "ms a step", "ms waiting", "heartbeat"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `labs watch`."""
    parser.description = ("Show the heartbeats of a run's workers, from the login node or a second terminal. The rank "
                          "that waits least is the one for which the others wait. Ctrl-C ends it, and the run goes on.")
    parser.add_argument("run", nargs="?", metavar="RUN",
                        help="name of a run, or of a lab for its newest run; default: the newest run")
    parser.add_argument("--results", type=command_line.path, default=results_dir(), help="the results folder")


def main(args: argparse.Namespace) -> None:
    """Show the run once; in a terminal, until it has a record or its folder is gone."""
    folder, height = find_run(args.run, args.results), 0
    while folder.is_dir():
        lines = describe(folder).split("\n")
        # Each table is drawn over the last one.
        print(f"\x1b[{height}A\x1b[J" * bool(height) + "\n".join(lines), flush=True)
        if not sys.stdout.isatty() or (folder / "record.json").exists():
            return
        height = len(lines)
        time.sleep(PERIOD)


def find_run(wanted: str | None, root: Path) -> Path:
    """Return the folder of a run: by its name, the newest of a lab, or by default the newest."""
    # The run that was started or continued last comes first.
    started = sorted(root.glob("*/*/run.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    folders = [path.parent for path in started]
    if wanted is not None:
        mine = [each for each in folders if wanted == each.name]
        folders = mine or [each for each in folders if catalogue.resolve(wanted) == each.parent.name]
    if not folders:
        raise LabError(f"no run{f' of {quoted(wanted)}' if wanted else ''} in {format_path(root)}; one that has just "
                       "been started appears after some seconds")
    return folders[0]


def describe(folder: Path) -> str:
    """Return the table of a run's heartbeats."""
    beats = heartbeat.read_folder(folder / heartbeat.FOLDER)
    state = ("finished: labs results" if (folder / "record.json").exists() else
             f"{len(beats)} of its workers have sent a heartbeat")
    table = f"\n{terminal.table([HEADING, *map(_describe_worker, beats)])}" * bool(beats)
    return f"{printable(folder.parent.name)}/{printable(folder.name)}: {state}{table}"


def _describe_worker(beat: Heartbeat) -> list[str]:
    """Return a row; the clocks of nodes may differ, so the age of a heartbeat may be off by as much."""
    age = f"{max(0, time.time() - beat.alive):.0f} s ago" if beat.alive else "has ended"
    times = (f"{1e3 * seconds:.1f}" if beat.step_seconds else "" for seconds in (beat.step_seconds,
                                                                                 beat.exchange_seconds))
    progress = [f"{done}/{total}" if total else str(done)
                for done, total in ((beat.epoch, beat.epochs), (beat.step, beat.steps))]
    return [str(beat.rank), printable(beat.host), *progress, *times, age]
