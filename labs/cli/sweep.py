"""The command `labs sweep`: which cells, on this machine or as a Slurm array. Imports no TensorFlow."""

from __future__ import annotations

import argparse
import dataclasses
import re
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labs.launch import capacity
from labs.launch.sweep import FAILED, Unfinished, run, runs_elsewhere
from labs.run import catalogue, command_line, naming
from labs.run.errors import LabError
from labs.run.lab import Lab
from labs.run.paths import ROOT, shown
from labs.run.sweeps import Cell, Sweep, cells, finished
from labs.run.text import one_line, plural, printable_lines
from labs.slurm import allocation


def main(asked: argparse.Namespace, rest: Sequence[str], known: Sequence[str] = ()) -> int:
    """Do what `labs sweep` was asked for, and return its exit code: 1 if a cell failed.

    Args:
        asked: Of the launch: lab, only, workers, repeats, oversubscribe, list, cell, sbatch.
        rest: The lab's own options.
        known: The options of the launch, to be suggested for a misspelled one.
    """
    lab = catalogue.load_lab(asked.lab)
    preset, words = command_line.split_preset(lab, rest)
    base, options = command_line.parse(lab, rest, known=known)
    for refused in ("name", "resume"):
        if getattr(options, refused):
            raise LabError(f"--{refused} is for one run; a sweep names its runs itself, and always goes on")
    sweeps = [_narrowed(each, words, base, asked) for each in _chosen(lab, preset, asked.only)]
    todo, store = cells(sweeps, base), naming.results_root(options)
    if asked.sbatch:
        return _submit(todo, _again(asked, rest), ["--results", str(store)] if options.results else [])
    todo = [_held(cell, asked.oversubscribe) for cell in todo]
    if asked.list:
        return _show(todo, store)
    if asked.cell is not None:
        todo = [_nth(todo, asked.cell)]
    left = run(lab, todo, store, asked.oversubscribe)
    _show_summary(lab, todo, store)
    return _finish(todo, left, store)


def _chosen(lab: Lab, preset: str, only: Sequence[str] | None) -> list[Sweep]:
    sweeps = lab.sweeps.get(preset, ())
    if not sweeps:
        raise LabError(f"{lab.name} has no sweep for preset {preset!r}; `labs run` runs it once")
    names = [each.name for each in sweeps]
    for name in only or ():
        if name not in names:
            raise LabError(f"{lab.name} has no sweep {name!r}; there are: {', '.join(names)}")
    return [each for each in sweeps if not only or each.name in only]


def _narrowed(sweep: Sweep, words: Sequence[str], base: Any, asked: argparse.Namespace) -> Sweep:
    """Return a sweep with what the command line sets: it goes before what the sweep varies."""
    named = {word.partition("=")[0].removeprefix("--").removeprefix("no-").replace("-", "_") for word in words}
    for workers in asked.workers or ():
        if not asked.oversubscribe and not asked.sbatch and asked.cell is None:  # The n-th may be a narrower one.
            capacity.check_slots(workers)
    seeds = tuple(range(1, asked.repeats + 1)) if asked.repeats else sweep.seeds
    return dataclasses.replace(
        sweep,
        grid={name: values for name, values in sweep.grid.items() if name not in named},
        seeds=(base.seed,) if "seed" in named else seeds,
        workers=asked.workers or sweep.workers,
    )


def _held(cell: Cell, oversubscribe: bool) -> Cell:
    """Mark a cell that is for other nodes than there are here, or has more workers than there are cores."""
    granted, reason = allocation.current(), ""
    if cell.nodes > 1 and (not granted or granted.ntasks_per_node != (cell.workers // cell.nodes,) * cell.nodes):
        reason = f"needs {cell.nodes} x {cell.workers // cell.nodes} (nodes x tasks on each); --sbatch asks for them"
    elif cell.workers > capacity.slots() and not oversubscribe:
        reason = f"more workers than the {plural(capacity.slots(), 'core')}; --oversubscribe runs it"
    return dataclasses.replace(cell, skipped=cell.skipped or reason)


def _nth(todo: Sequence[Cell], number: int) -> Cell:
    if not 0 <= number < len(todo):
        raise LabError(f"--cell {number}: there are {plural(len(todo), 'run')}, from 0 on; see them with --list")
    return todo[number]


def _again(asked: argparse.Namespace, rest: Sequence[str]) -> list[str]:
    """Return the options that make the same cells in the jobs of an array."""
    words = [word for name in asked.only or () for word in ("--only", name)]
    if asked.workers:
        words += ["--workers", ",".join(map(str, asked.workers))]
    if asked.repeats:
        words += ["--repeats", str(asked.repeats)]
    return [*words, *(["--oversubscribe"] if asked.oversubscribe else []), *rest]


def _state(cell: Cell, store: Path) -> str:
    failure = store / cell.lab / cell.name / FAILED
    if finished(cell, store):
        return "done"
    if runs_elsewhere(cell, store):
        return "running elsewhere"
    if cell.skipped:
        return f"skipped: {cell.skipped}"
    return f"failed: {one_line(failure.read_text())}" if failure.exists() else "to do"


def _show(todo: Sequence[Cell], store: Path) -> int:
    """Print the cells with the settings in which they differ."""
    settings = [dataclasses.asdict(cell.config) | {"workers": cell.workers, "nodes": cell.nodes} for cell in todo]
    varied = [name for name in settings[0] if len({str(each[name]) for each in settings}) > 1]
    for number, (cell, values) in enumerate(zip(todo, settings, strict=True)):
        print(f"{number:3}  {'  '.join(f'{name} {values[name]}' for name in varied)}  {_state(cell, store)}")
    return 0


def _show_summary(lab: Lab, todo: Sequence[Cell], store: Path) -> None:
    """Print the lab's summary of the sweep's runs, or their speedups, and save the lab's figures beside the runs."""
    from labs.report import plots
    from labs.results import records, speed_tables

    names = {cell.name for cell in todo}
    found = [record for record in records.read_all(lab.name, store) if record["run"] in names]
    if found and (told := (lab.summary or speed_tables.summary)(found)):
        print(printable_lines(told) + "\n")
    for title, figure in lab.figures(found):
        path = store / lab.name / f"{re.sub('[^a-z0-9]+', '-', title.lower()).strip('-')}.png"
        plots.save(figure, path)
        print(f"drawn: {shown(path)}")


def _finish(todo: Sequence[Cell], left: Unfinished, store: Path) -> int:
    """Say what came of the sweep, and return its exit code: a cell that another sweep runs has not failed."""
    for reason in dict.fromkeys(cell.skipped for cell in todo if cell.skipped):
        count = sum(cell.skipped == reason for cell in todo)
        print(f"left out {plural(count, 'run')}: {reason}")
    done = sum(finished(cell, store) for cell in todo)
    elsewhere = f", {len(left.elsewhere)} running elsewhere" if left.elsewhere else ""
    print(f"{done} of {plural(len(todo), 'run')} done, {len(left.failed)} failed{elsewhere}; `labs report` shows them" +
          ("; the same command tries the failed ones again" if left.failed else ""))
    return 1 if left.failed else 0


def _submit(todo: Sequence[Cell], words: Sequence[str], report_words: Sequence[str]) -> int:
    """Submit the cells as an array for each layout of nodes, and after their end the report.

    What runs on one node is one array, as wide as its widest cell.
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
    """Submit a job from the clone's top and return its number."""
    try:
        done = subprocess.run(["sbatch", "--parsable", *arguments], cwd=ROOT, capture_output=True, text=True,
                              check=False)
    except FileNotFoundError:
        raise LabError("no sbatch on the PATH; on a machine without Slurm leave --sbatch out") from None
    if done.returncode:
        raise LabError(f"sbatch refused: {(done.stderr.strip() or 'no reason given').splitlines()[-1]}")
    return done.stdout.strip().partition(";")[0]
