"""`labs sweep LAB`: all runs that a lab's questions need, on this machine or as a Slurm array."""

from __future__ import annotations

import argparse
import dataclasses
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labs.launch import capacity, mpirun
from labs.launch.sweep import FAILED, Unfinished, run_sweep, runs_elsewhere
from labs.run import allocation, atomic, catalogue, cluster_state, command_line, terminal, usage
from labs.run.catalogue import Lab
from labs.run.errors import LabError
from labs.run.options import LAUNCH, check_name
from labs.run.paths import ROOT, shown
from labs.run.sweeps import Cell, Sweep, cells, finished
from labs.run.text import one_line, plural, printable_lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sweep options; labs.run.command_line adds the lab's own."""
    parser.description = ("Start every run that a lab's questions need, each with new workers. Finished runs are "
                          "kept, so the same command continues where it stopped. All other options are the lab's "
                          "(`labs run LAB --help` shows them); the sweep does not vary an option that you give here.")
    parser.add_argument("--only", action="append", metavar="NAME", help="run only the lab's sweep of this name")
    parser.add_argument("--workers", type=usage.counts, metavar="N,N",
                        help="numbers of workers, instead of the sweep's")
    parser.add_argument("--repeats", type=usage.count, metavar="N", help="runs of each setting, with seeds 1 to N")
    parser.add_argument("--oversubscribe", action="store_true", help=LAUNCH["oversubscribe"])
    parser.add_argument("--keep-reference", metavar="NAME",
                        help="also copy the finished runs' records to data/reference_runs/NAME, to commit them")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--list", action="store_true", help="list the runs and their state; run none")
    action.add_argument("--cell", type=int, metavar="N", help="start only run N of the list, as Slurm arrays do")
    action.add_argument("--sbatch", action="store_true", help="submit the runs as a Slurm array, then a report")


def main(args: argparse.Namespace) -> int:
    """Run, list or submit a lab's sweeps; return 1 if a run failed."""
    if args.lab is None:
        args.parser.print_help()
        return 0
    if args.keep_reference is not None:
        check_name(args.keep_reference, "--keep-reference")
    lab = catalogue.load_lab(args.lab)
    preset, words = command_line.split_preset(lab, args.lab_options)
    base, options = command_line.parse(lab, args.lab_options, known=usage.options(args.parser.format_help()))
    for refused in ("name", "resume"):
        if getattr(options, refused):
            raise LabError(f"--{refused} is for one run; a sweep names its runs itself, and always continues")
    sweeps = [_narrowed(each, words, base, args) for each in _chosen(lab, preset, args.only)]
    todo, results_root = cells(sweeps, base), options.results_root
    if args.sbatch:
        return _submit(todo, _cell_options(args), ["--results", str(results_root)] if options.results else [])
    todo = [_skip_unless_fits(cell, args.oversubscribe) for cell in todo]
    if args.list:
        return _show(todo, results_root)
    if args.cell is not None:
        todo = [_nth(todo, args.cell)]
    left = run_sweep(lab, todo, results_root, args.oversubscribe)
    _show_summary(lab, todo, results_root)
    if args.keep_reference:
        _keep_reference(todo, results_root, args.keep_reference)
    return _finish(todo, left, results_root)


def _chosen(lab: Lab, preset: str, only: Sequence[str] | None) -> list[Sweep]:
    sweeps = lab.sweeps.get(preset, ())
    if not sweeps:
        raise LabError(f"{lab.name} has no sweep for preset {preset!r}; `labs run` runs it once")
    names = [each.name for each in sweeps]
    for name in only or ():
        if name not in names:
            raise LabError(f"{lab.name} has no sweep {name!r}; there are: {', '.join(names)}")
    return [each for each in sweeps if not only or each.name in only]


def _narrowed(sweep: Sweep, words: Sequence[str], base: Any, args: argparse.Namespace) -> Sweep:
    """Return a sweep in which the options given on the command line replace what it varies."""
    named = {word.partition("=")[0].removeprefix("--").removeprefix("no-").replace("-", "_") for word in words}
    for workers in args.workers or ():
        if not args.oversubscribe and not args.sbatch and args.cell is None:  # Cell N may have fewer.
            capacity.check_slots(workers)
    seeds = tuple(range(1, args.repeats + 1)) if args.repeats else sweep.seeds
    return dataclasses.replace(
        sweep,
        grid={name: values for name, values in sweep.grid.items() if name not in named},
        seeds=(base.seed,) if "seed" in named else seeds,
        workers=args.workers or sweep.workers,
    )


def _skip_unless_fits(cell: Cell, oversubscribe: bool) -> Cell:
    """Mark a cell as skipped if it needs other nodes than this job has, or more workers than there are cores."""
    reason, each = "", cell.workers // cell.nodes
    if cell.link and not cluster_state.inside():
        reason = f"sets the links of a cluster; `labs cluster up`, then `labs cluster sweep {cell.lab} ...` runs it"
    elif cell.nodes > 1 and not _has_nodes(cell.nodes, each):
        reason = f"needs {cell.nodes} x {each} (nodes x tasks on each); --sbatch asks for them, `labs cluster` has them"
    elif cell.workers > capacity.slots() and not oversubscribe:
        reason = f"more workers than the {plural(capacity.slots(), 'core')}; --oversubscribe runs it"
    return dataclasses.replace(cell, skipped=cell.skipped or reason)


def _has_nodes(nodes: int, workers_on_each: int) -> bool:
    """Return whether mpirun spreads workers evenly over some nodes: it fills a node before the next."""
    if granted := allocation.current():
        return granted.ntasks_per_node == (workers_on_each,) * nodes
    slots = list(mpirun.host_slots().values())
    return len(slots) >= nodes and set(slots) == {workers_on_each}


def _nth(todo: Sequence[Cell], number: int) -> Cell:
    if not 0 <= number < len(todo):
        raise LabError(f"--cell {number}: there are {plural(len(todo), 'run')}, numbered from 0; --list shows them")
    return todo[number]


def _cell_options(args: argparse.Namespace) -> list[str]:
    """Return the options with which the jobs of an array make the same list of cells."""
    words = [word for name in args.only or () for word in ("--only", name)]
    if args.workers:
        words += ["--workers", ",".join(map(str, args.workers))]
    if args.repeats:
        words += ["--repeats", str(args.repeats)]
    return [*words, *(["--oversubscribe"] if args.oversubscribe else []), *args.lab_options]


def _state(cell: Cell, results_root: Path) -> str:
    failure = results_root / cell.lab / cell.name / FAILED
    if finished(cell, results_root):
        return "done"
    if runs_elsewhere(cell, results_root):
        return "running elsewhere"
    if cell.skipped:
        return f"skipped: {cell.skipped}"
    return f"failed: {one_line(atomic.read_text(failure))}" if failure.exists() else "to do"


def _show(todo: Sequence[Cell], results_root: Path) -> int:
    """List the cells: the settings in which they differ, and their state."""
    settings = [dataclasses.asdict(cell.config) | {"workers": cell.workers, "nodes": cell.nodes} for cell in todo]
    varied = [name for name in settings[0] if len({str(each[name]) for each in settings}) > 1]
    for number, (cell, values) in enumerate(zip(todo, settings, strict=True)):
        settings_of = "  ".join(f"{name} {values[name]}" for name in varied)
        print(terminal.folded(f"{number:3}  {settings_of}  {_state(cell, results_root)}", 5))
    return 0


def _show_summary(lab: Lab, todo: Sequence[Cell], results_root: Path) -> None:
    """Print the lab's summary of the sweep's runs, by default their speedups."""
    from labs.pages import studies
    from labs.results import records, speed_tables

    names = {cell.name for cell in todo}
    runs = [record for record in records.read_all(lab.name, results_root) if record["run"] in names]
    if runs and (summary := studies.summary(lab.name, runs) or speed_tables.summary(runs)):
        print(printable_lines(summary) + "\n")


def _keep_reference(todo: Sequence[Cell], results_root: Path, name: str) -> None:
    from labs.results import records, reference

    folders = (results_root / cell.lab / cell.name for cell in todo if finished(cell, results_root))
    count = reference.keep(map(records.read, folders), name)
    print(f"{plural(count, 'record')} kept in {shown(reference.FOLDER / name)}")


def _finish(todo: Sequence[Cell], left: Unfinished, results_root: Path) -> int:
    """Print how many runs are done; return 1 if one failed. A cell that another sweep is running has not failed."""
    for reason in dict.fromkeys(cell.skipped for cell in todo if cell.skipped):
        count = sum(cell.skipped == reason for cell in todo)
        print(terminal.folded(f"left out {plural(count, 'run')}: {reason}", 2))
    done = sum(finished(cell, results_root) for cell in todo)
    elsewhere = f", {len(left.elsewhere)} running elsewhere" if left.elsewhere else ""
    again = "; the same command retries the failed ones" if left.failed else ""
    print(terminal.folded(f"{done} of {plural(len(todo), 'run')} done, {len(left.failed)} failed{elsewhere}; "
                          f"`labs report` shows them{again}", 2))
    return 1 if left.failed else 0


def _submit(todo: Sequence[Cell], words: Sequence[str], report_words: Sequence[str]) -> int:
    """Submit an array for each layout of nodes, and a report job that starts after the last of them.

    The cells that fit on one node share an array with as many tasks as the largest of them needs.
    """
    lab, layouts = todo[0].lab, defaultdict(list)
    for number, cell in enumerate(todo):
        layouts[cell.nodes, cell.workers if cell.nodes > 1 else 0].append(number)
    arrays = []
    for (nodes, _), numbers in sorted(layouts.items()):
        widest = max(todo[number].workers // nodes for number in numbers)
        arrays.append(_sbatch("--array", ",".join(map(str, numbers)), "--nodes", str(nodes), "--ntasks-per-node",
                              str(widest), "jobs/sweep.sh", lab, *words))
    report = _sbatch("--dependency", ":".join(["afterany", *arrays]), "jobs/report.sh", *report_words)
    jobs = f"job{'s' * (len(arrays) > 1)} {', '.join(arrays)}"
    print(f"{plural(len(todo), 'run')} of {lab} are {jobs}, the report after them is job {report}; "
          "`squeue --me` shows all")
    return 0


def _sbatch(*arguments: str) -> str:
    """Submit a job from the top folder of the clone and return its job id."""
    try:
        done = subprocess.run(["sbatch", "--parsable", *arguments], cwd=ROOT, capture_output=True, text=True,
                              check=False)
    except FileNotFoundError:
        raise LabError("no sbatch on the PATH; on a machine without Slurm leave --sbatch out") from None
    if done.returncode:
        raise LabError(f"sbatch refused: {(done.stderr.strip() or 'no reason given').splitlines()[-1]}")
    return done.stdout.strip().partition(";")[0]
