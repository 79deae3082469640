"""Start, or continue, all runs that a lab's questions need; on this machine, or as a Slurm array."""

from __future__ import annotations

import argparse
import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from labs.launch import mpirun
from labs.run import catalogue, cluster_state, command_line, resources, slurm, terminal, usage
from labs.run.catalogue import Lab
from labs.run.errors import LabError
from labs.run.options import LAUNCH, check_name
from labs.run.paths import ROOT, format_path
from labs.run.sweeps import Cell, Sweep, cells, finished
from labs.run.text import plural


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sweep options; labs.run.command_line adds the lab's own."""
    parser.description = ("Start every run that a lab's questions need, each with new workers. Finished runs are "
                          "kept, so the same command continues where it stopped. All other options are the lab's "
                          "(`labs run LAB --help` shows them); the sweep does not vary an option that you give here.")
    parser.add_argument("lab", metavar="LAB", help="name or number of a lab: lab04_speedup, lab04, 4")
    parser.add_argument("--only", action="append", metavar="NAME", help="run only the lab's sweep of this name")
    parser.add_argument("--workers", type=usage.counts, metavar="N,N",
                        help="numbers of workers, instead of the sweep's")
    parser.add_argument("--repeats", type=usage.count, metavar="N", help="runs of each setting, with seeds 1 to N")
    parser.add_argument("--oversubscribe", action="store_true", help=LAUNCH["oversubscribe"])
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--keep-reference", metavar="NAME",
                        help="also copy the finished runs' records to data/reference_runs/NAME, to commit them")
    action.add_argument("--list", action="store_true", help="list the runs and their state; run none")
    action.add_argument("--cell", type=int, metavar="N", help="start only run N of the list, as Slurm arrays do")
    action.add_argument("--sbatch", action="store_true", help="submit the runs as a Slurm array, then a report")


def main(args: argparse.Namespace) -> int:
    """Run, list or submit a lab's sweeps; return 1 if a run failed."""
    from labs.launch.sweep import run_sweep

    if args.keep_reference is not None:
        check_name(args.keep_reference, "--keep-reference")
    lab = catalogue.load_lab(args.lab)
    given = command_line.given_options(lab, args.lab_options, known=args.parser.options)
    base, options = command_line.parse(lab, args.lab_options)
    if refused := {"name", "resume"} & given.keys():
        raise LabError(f"--{min(refused)} is for one run; a sweep names its runs itself, and always continues")
    todo = cells([_narrow(each, given, args) for each in _choose(lab, options.preset, args.only)], base)
    if args.sbatch:
        return _submit(todo, args.typed, ["--results", str(options.results)] if options.results else [])
    todo = [_skip_unless_fits(cell, args.oversubscribe) for cell in todo]
    if args.list:
        print(_table(todo, options.results_root))
        return 0
    if args.cell is not None:
        todo = [_nth(todo, args.cell)]
    failed = run_sweep(lab, todo, options.results_root, args.oversubscribe)
    _print_summary(lab, todo, options.results_root)
    if args.keep_reference:
        _keep_reference(todo, options.results_root, args.keep_reference)
    _print_end(todo, len(failed), options.results_root)
    return int(bool(failed))


def _choose(lab: Lab, preset: str, only: Sequence[str] | None) -> list[Sweep]:
    """Return a lab's sweeps of a preset, or some of them by name."""
    sweeps = {each.name: each for each in lab.sweeps.get(preset, ())}
    if not sweeps:
        raise LabError(f"{lab.name} has no sweep for preset {preset!r}; `labs run` runs it once")
    for name in only or ():
        if name not in sweeps:
            raise LabError(f"{lab.name} has no sweep {name!r}; there are: {', '.join(sweeps)}")
    return [each for name, each in sweeps.items() if not only or name in only]


def _narrow(sweep: Sweep, given: Mapping[str, Any], args: argparse.Namespace) -> Sweep:
    """Return a sweep in which the options given on the command line replace what it varies."""
    seeds = tuple(range(1, args.repeats + 1)) if args.repeats else sweep.seeds
    return dataclasses.replace(
        sweep,
        grid={name: values for name, values in sweep.grid.items() if name not in given},
        seeds=(given["seed"],) if "seed" in given else seeds,
        workers=args.workers or sweep.workers,
    )


def _skip_unless_fits(cell: Cell, oversubscribe: bool) -> Cell:
    """Mark a cell as skipped if it needs other nodes than this job has, or more workers than there are cores."""
    reason, each = "", cell.workers // cell.nodes
    if cell.link and not cluster_state.inside():
        reason = f"sets the links of a cluster; `labs cluster up`, then `labs cluster sweep {cell.lab} ...` runs it"
    elif cell.nodes > 1 and not _has_nodes(cell.nodes, each):
        reason = f"needs {cell.nodes} x {each} (nodes x tasks on each); --sbatch asks for them, `labs cluster` has them"
    elif cell.workers > mpirun.slots() and not oversubscribe:
        reason = f"more workers than the {plural(mpirun.slots(), 'core')}; --oversubscribe runs it"
    return dataclasses.replace(cell, skipped=cell.skipped or reason)


def _has_nodes(nodes: int, workers_on_each: int) -> bool:
    """Return whether mpirun spreads workers evenly over some nodes: it fills a node before the next."""
    if granted := resources.allocation():
        return granted.ntasks_per_node == (workers_on_each,) * nodes
    slots = list(mpirun.host_slots().values())
    return len(slots) >= nodes and set(slots) == {workers_on_each}


def _nth(todo: Sequence[Cell], number: int) -> Cell:
    if not 0 <= number < len(todo):
        raise LabError(f"--cell {number}: there are {plural(len(todo), 'run')}, numbered from 0; --list shows them")
    return todo[number]


def _table(todo: Sequence[Cell], results_root: Path) -> str:
    """Return a table of the cells: the settings in which they differ, and their state."""
    settings = [dataclasses.asdict(cell.config) | {"workers": cell.workers, "nodes": cell.nodes} for cell in todo]
    varied = [name for name in settings[0] if len({str(each[name]) for each in settings}) > 1]
    states = ["done" if finished(cell, results_root) else f"skipped: {cell.skipped}" if cell.skipped else "to do"
              for cell in todo]
    rows = [[str(number), *(str(values[name]) for name in varied), state]
            for number, (values, state) in enumerate(zip(settings, states, strict=True))]
    return terminal.table([["run", *varied, "state"], *rows], left=True)


def _print_summary(lab: Lab, todo: Sequence[Cell], results_root: Path) -> None:
    """Print the lab's summary of the sweep's runs, by default their speedups."""
    from labs.pages import studies
    from labs.results import records, scaling

    names = {cell.name for cell in todo}
    runs = [record for record in records.read_all(lab.name, results_root) if record["run"] in names]
    if runs and (summary := studies.summary(lab.name, runs) or scaling.summary(runs)):
        print(summary + "\n")


def _keep_reference(todo: Sequence[Cell], results_root: Path, name: str) -> None:
    """Copy the records of finished cells to the reference runs of this name."""
    from labs.results import records, reference

    folders = (results_root / cell.lab / cell.name for cell in todo if finished(cell, results_root))
    count = reference.keep(map(records.read, folders), name)
    print(f"{plural(count, 'record')} kept in {format_path(reference.FOLDER / name)}")


def _print_end(todo: Sequence[Cell], failed: int, results_root: Path) -> None:
    """Print how many runs are done, and why the others are not."""
    reasons = [cell.skipped for cell in todo if cell.skipped]
    for reason in dict.fromkeys(reasons):
        print(f"left out {plural(reasons.count(reason), 'run')}: {reason}")
    done = sum(finished(cell, results_root) for cell in todo)
    again = "; the same command retries the failed ones" if failed else ""
    print(f"{done} of {plural(len(todo), 'run')} done, {failed} failed; `labs report` shows them{again}")


def _submit(todo: Sequence[Cell], words: Sequence[str], report_words: Sequence[str]) -> int:
    """Submit an array for each layout of nodes, and a report job that starts after the last of them.

    The cells that fit on one node share an array with as many tasks as the largest of them needs.
    """
    layouts = defaultdict(list)
    for number, cell in enumerate(todo):
        layouts[cell.nodes, cell.workers if cell.nodes > 1 else 0].append(number)
    words, arrays = [word for word in words if word != "--sbatch"], []
    for (nodes, _), numbers in sorted(layouts.items()):
        widest = max(todo[number].workers // nodes for number in numbers)
        arrays.append(_sbatch("--array", ",".join(map(str, numbers)), "--nodes", str(nodes), "--ntasks-per-node",
                              str(widest), "jobs/sweep.sh", *words))
    report = _sbatch("--dependency", ":".join(["afterany", *arrays]), "jobs/report.sh", *report_words)
    print(f"{plural(len(todo), 'run')} of {todo[0].lab} are job{'s' * (len(arrays) > 1)} {', '.join(arrays)}, "
          f"the report after them is job {report}; `squeue --me` shows all")
    return 0


def _sbatch(*arguments: str) -> str:
    """Submit a job from the top folder of the clone and return its job id."""
    code, output, errors = slurm.run("sbatch", "--parsable", *arguments, cwd=ROOT)
    if code:
        raise LabError(f"sbatch refused: {(errors.strip() or 'no reason given').splitlines()[-1]}")
    return output.strip().partition(";")[0]
