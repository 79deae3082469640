"""Start all runs that a lab's questions need, here or as a Slurm array; a run with a record is done."""

import argparse
import contextlib
import dataclasses
import shutil
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labs.datasets import registry
from labs.run import catalogue, cluster_state, command_line, local, mpirun, resources, run_lock, slurm, terminal
from labs.run.catalogue import Lab
from labs.run.errors import ERROR_PREFIX, LabError, one_line, plural
from labs.run.paths import ROOT
from labs.run.sweeps import Cell, Sweep, cells


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sweep options; labs.run.command_line adds the lab's own."""
    parser.epilog = "Other options are the lab's: `labs run LAB --help`. A sweep does not vary an option that you give."
    parser.add_argument("lab", metavar="LAB", help="name or number of a lab: lab04_speedup, lab04, 4")
    parser.add_argument("--only", action="append", metavar="NAME", help="run only the lab's sweep of this name")
    parser.add_argument("--workers", type=command_line.counts, metavar="N,N", help="other numbers of workers")
    parser.add_argument("--repeats", type=command_line.count, metavar="N", help="runs of each setting (seeds 1 to N)")
    command_line.add_oversubscribe(parser)
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--keep-reference", metavar="NAME", help="copy the records to data/reference_runs/NAME, too")
    action.add_argument("--list", action="store_true", help="list the runs and their state; run none")
    action.add_argument("--cell", type=int, metavar="N", help="start only run N of the list, as Slurm arrays do")
    action.add_argument("--sbatch", action="store_true", help="submit the runs as a Slurm array, then a report")


def main(args: argparse.Namespace) -> int:
    """Run, list or submit a lab's sweeps; return 1 if a run failed."""
    lab = catalogue.load_lab(args.lab)
    given = command_line.given_options(lab, args.lab_options, known=args.parser.options)
    base, options = command_line.parse(lab, args.lab_options)
    if refused := {"name", "resume"} & given.keys():
        raise LabError(f"--{min(refused)} is for one run; a sweep names its runs itself, and always continues")
    todo = cells(_sweeps(lab, options.preset, given, args), base)
    if not args.list:
        registry.check_data(lab, base)
    if args.sbatch:
        return _submit(todo, args.typed, ["--results", str(options.results)] if options.results else [])
    todo = [dataclasses.replace(cell, skipped=cell.skipped or _obstacle(cell, args.oversubscribe)) for cell in todo]
    if args.list:
        print(_table(todo, options.results_root))
        return 0
    return _run_all(lab, todo if args.cell is None else [todo[args.cell]], options.results_root, args)


def _sweeps(lab: Lab, preset: str, given: dict[str, Any], args: argparse.Namespace) -> list[Sweep]:
    """Return the chosen sweeps; the options given on the command line replace what they vary."""
    sweeps = {each.name: each for each in lab.sweeps.get(preset, ())}
    if not sweeps:
        raise LabError(f"{lab.name} has no sweep for preset {preset!r}; `labs run` runs it once")
    if unknown := set(args.only or ()) - sweeps.keys():
        raise LabError(f"{lab.name} has no sweep {min(unknown)!r}; there are: {', '.join(sweeps)}")
    repeats = args.repeats and tuple(range(1, args.repeats + 1))
    return [dataclasses.replace(
        each, grid={name: values for name, values in each.grid.items() if name not in given},
        seeds=(given["seed"],) if "seed" in given else repeats or each.seeds, workers=args.workers or each.workers)
        for name, each in sweeps.items() if not args.only or name in args.only]


def _obstacle(cell: Cell, oversubscribe: bool) -> str:
    """Return why a cell cannot run here; an empty string if it can."""
    if cell.link and not cluster_state.inside():
        return f"sets the links of a cluster; `labs cluster up`, then `labs cluster sweep {cell.lab} ...` runs it"
    granted, each = resources.allocation(), cell.workers // cell.nodes
    # mpirun fills a node before the next one.
    slots = granted.ntasks_per_node if granted else tuple(mpirun.host_slots().values())[:cell.nodes]
    if cell.nodes > 1 and (slots != (each,) * cell.nodes or cell.workers % cell.nodes):
        return f"needs {cell.nodes} x {each} (nodes x tasks on each); --sbatch asks for them, `labs cluster` has them"
    if cell.workers > mpirun.slots() and not oversubscribe:
        return f"more workers than the {plural(mpirun.slots(), 'core')}; --oversubscribe runs it"
    return ""


def _table(todo: Sequence[Cell], results_root: Path) -> str:
    settings = [dataclasses.asdict(cell.config) | {"workers": cell.workers, "nodes": cell.nodes} for cell in todo]
    varied = [name for name in settings[0] if len({str(each[name]) for each in settings}) > 1]
    rows = [["run", *varied, "state"]]
    for number, (cell, values) in enumerate(zip(todo, settings, strict=True)):
        state = f"skipped: {cell.skipped}" if cell.skipped else "to do"
        rows.append([str(number), *(str(values[name]) for name in varied),
                     "done" if cell.is_finished(results_root) else state])
    return terminal.table(rows, left=True)


def _run_all(lab: Lab, todo: Sequence[Cell], results_root: Path, args: argparse.Namespace) -> int:
    """Run the cells that have no record, one after the other; print the lab's summary, and what is not done."""
    failed = 0
    for number, cell in enumerate(todo, 1):
        if cell.skipped or cell.is_finished(results_root):
            continue
        terminal.note(f"run {number} of {len(todo)}: {cell.name}")
        try:
            _run(lab, cell, results_root, args.oversubscribe)
        except LabError as cause:
            failed += 1
            terminal.note(f"failed: {one_line(cause)}")
    finished = [cell for cell in todo if cell.is_finished(results_root)]
    _print_summary(lab, finished, results_root, args.keep_reference)
    for reason, count in Counter(cell.skipped for cell in todo if cell.skipped).items():
        print(f"left out {plural(count, 'run')}: {reason}")
    print(f"{len(finished)} of {plural(len(todo), 'run')} done, {failed} failed; `labs report` shows them")
    return int(bool(failed))


def _run(lab: Lab, cell: Cell, results_root: Path, oversubscribe: bool) -> None:
    """Run one cell; its output and the cause of a failure go to its folder's log."""
    folder = results_root / cell.lab / cell.name
    run_lock.refuse_held(folder)
    shutil.rmtree(folder, ignore_errors=True)  # Files of an earlier attempt would mix two runs' timings.
    folder.mkdir(parents=True)
    arguments = [*command_line.to_argv(cell.config), "--name", cell.name, "--results", str(results_root)]
    with (open(folder / "log.txt", "w") as log,
          cluster_state.restore_links() if cell.link else contextlib.nullcontext()):
        try:
            if cell.link:
                cluster_state.set_bandwidth(cell.link)
            local.run(lab, arguments, cell.workers, oversubscribe, log)
        except LabError as cause:
            print(f"{ERROR_PREFIX}{cause}", file=log)
            raise


def _print_summary(lab: Lab, finished: Sequence[Cell], results_root: Path, reference_name: str | None) -> None:
    """Print the lab's summary of its runs, by default their speedups; keep their records as reference runs."""
    from labs.pages import studies
    from labs.results import records, reference, scaling

    runs = [records.read(results_root / cell.lab / cell.name) for cell in finished]
    if runs and (summary := studies.summary(lab.name, runs) or scaling.summary(runs)):
        print(summary + "\n")
    if reference_name:
        print(f"{plural(reference.add(runs, reference_name), 'record')} kept in {reference.FOLDER / reference_name}")


def _submit(todo: Sequence[Cell], words: Sequence[str], report_words: Sequence[str]) -> int:
    """Submit an array for each layout of nodes and tasks, and a report job that starts after the last of them."""
    layouts = defaultdict(list)
    for number, cell in enumerate(todo):
        layouts[cell.nodes, cell.workers // cell.nodes].append(str(number))
    words = [word for word in words if word != "--sbatch"]
    arrays = [_sbatch("sweep.sh", words, "--array", ",".join(numbers), "--nodes", str(nodes), "--ntasks-per-node",
                      str(tasks)) for (nodes, tasks), numbers in sorted(layouts.items())]
    report = _sbatch("report.sh", report_words, "--dependency", ":".join(["afterany", *arrays]))
    print(f"{plural(len(todo), 'run')} of {todo[0].lab} are job{'s' * (len(arrays) > 1)} {', '.join(arrays)}, "
          f"the report after them is job {report}; `squeue --me` shows all")
    return 0


def _sbatch(script: str, words: Sequence[str], *options: str) -> str:
    (answer,) = slurm.rows("sbatch", "--parsable", f"--chdir={ROOT}", *options, str(ROOT / "jobs" / script), *words)
    return answer[0].partition(";")[0]
