"""Rank results folders by scaling efficiency; what `labs lint` finds is left out."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labs.course.plausibility import checker
from labs.results import records, scaling, tables
from labs.run import catalogue, terminal, usage
from labs.run.errors import LabError
from labs.run.paths import results_dir
from labs.run.text import one_line, plural

COLUMNS = ("folder", "scaling_efficiency", "images_per_sec", "repeats", "note")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the lab, the folders and --workers."""
    parser.description = ("Rank results folders, one per student, by the scaling efficiency of a lab over one worker "
                          "with the same settings. Runs that `labs lint` finds implausible are left out, with the "
                          "reason.")
    parser.add_argument("lab", help="name or number of a lab")
    parser.add_argument("folders", nargs="*", type=usage.path, metavar="RESULTS",
                        help="results folders; default: your own")
    parser.add_argument("--workers", type=usage.count, default=2, help="how many workers; default: 2")


def main(args: argparse.Namespace) -> None:
    """Print the ranking, and below it what was left out.

    Raises:
        LabError: There is no such lab, one worker was asked for, or no folder has an efficiency.
    """
    if args.workers == 1:
        raise LabError("--workers 1: an efficiency compares several workers with one; use 2 or more")
    lab = catalogue.resolve(args.lab)
    folders = list({folder.resolve(): folder for folder in args.folders or [results_dir()]}.values())
    found = findings(folders)
    ranked, out = [], []
    for folder in folders:
        runs = {f"{folder}/{lab}/{run['run']}": run for run in records.read_all(lab, folder)
                if run["layout"]["size"] in (1, args.workers)}
        out += [line for path in runs for line in sorted(found.get(path, ()))]
        best = _best([run for path, run in runs.items() if path not in found], args.workers)
        ranked += [best | {"folder": str(folder)}] if best else []
        out += [] if best else [f"{folder}: no plausible runs on 1 and {args.workers} workers with the same settings"]
    if not ranked:
        raise LabError(f"nothing to rank: no folder has plausible runs of {lab} on 1 and {args.workers} workers with "
                       f"the same settings; `labs sweep {lab}` makes them, `labs lint` says what is implausible")
    ranked.sort(key=lambda row: row["scaling_efficiency"], reverse=True)
    title = f"{lab} on {plural(args.workers, 'worker')}: throughput / ({args.workers} x that of 1 worker)"
    places = [[str(place), *(tables.cell(row, name) for name in COLUMNS)] for place, row in enumerate(ranked, start=1)]
    print(tables.Grid(title, ["place", *map(tables.named, COLUMNS)], places).text())
    for line in out:
        print(terminal.folded(f"left out: {one_line(line)}", 4))


def findings(folders: Sequence[Path]) -> dict[str, set[str]]:
    """Return what lint finds, by the path of the run: where one run is a copy of another, in both.

    Args:
        folders: Different results folders.
    """
    found = defaultdict(set)
    for order in (folders, folders[::-1]):  # Lint names the copy that it reads second, whoever made it.
        for folder, verdict in zip(order, checker.verdicts(list(order)), strict=True):
            for each in verdict.findings if isinstance(verdict, checker.Verdict) else ():
                run = f"{folder}/{each.where.removeprefix(f'{folder}/')}"
                found[run].add(f"{run}: {each.rule}: {each.text}")
    return found


def _best(runs: Sequence[records.Record], workers: int) -> dict[str, Any] | None:
    """Return the row with the highest efficiency on some workers, of those that `scaling.speedups` has for the runs."""
    if not runs:
        return None
    rows = scaling.speedups(records.table(runs)).query("size == @workers and scaling_efficiency > 0")
    rows = rows[(rows["note"] == "") | (rows["scaling_efficiency_low"] <= 1)]  # Above 1 beyond noise: no place.
    return next(iter(rows.nlargest(1, "scaling_efficiency").to_dict("records")), None)
