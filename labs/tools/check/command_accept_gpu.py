"""Test a GPU node in about ten minutes: short runs of five labs, which must use its GPUs."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import re
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from labs.launch import capacity
from labs.launch.sweep import FAILED, run_sweep
from labs.measure.utilization import Utilization
from labs.results import records, reference
from labs.run import atomic, catalogue, command_line, usage
from labs.run.errors import LabError
from labs.run.paths import results_dir, shown
from labs.run.sweeps import Cell, finished
from labs.run.text import one_line, plural
from labs.tools.check import command, machine

CHECKS = ("gpus", "tensorflow", "horovod", "nccl", "proof")
"""The checks of `labs check` that concern a GPU node, in its order."""
RUNS: Mapping[str, Mapping[str, Any]] = {
    "lab01_baseline": {},
    "lab02_horovod": {"batch_size": 128},
    "lab04_speedup": {"model": "resnet18", "images": 0, "batch_size": 128, "threads": 0},
    "lab05_allreduce": {"largest_mb": 64.0},
    # Report A's batch on a GPU is 128. Half of it also fits a GPU with 8 GB.
    "lab08_throughput": {"model": "resnet50", "image_size": 224, "input": "synthetic", "batch_size": 64,
                         "steps_per_epoch": 20, "epochs": 3, "test_split": 0.0},
}
"""Changes to each lab's demo preset, so that a GPU has enough work and all runs together take about ten minutes."""
ALONE = ("lab01_baseline", "lab04_speedup", "lab08_throughput")
"""Labs that run on one worker: lab 1 always does, and a speedup needs it."""
TOGETHER = ("lab02_horovod", "lab04_speedup", "lab05_allreduce", "lab08_throughput")
"""Labs that run with one worker per GPU."""
SUMMARY = "acceptance.json"
USAGE = "usage.json"
"""The file in a run's folder with what the driver reported about the GPUs during the run."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A run, and what is wrong with it."""

    cell: Cell
    problems: list[str]
    seconds: float | None = None
    images_per_sec: float | None = None
    usage: dict[str, float] = dataclasses.field(default_factory=dict)
    """Per GPU the highest utilization in percent and the most memory in bytes, such as gpu0_percent."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `labs accept-gpu`."""
    parser.description = (
        "Test a GPU node in about ten minutes: run the checks of `labs check` that concern GPUs, then short runs of "
        "labs 1, 2, 4, 5 and 8 on one worker, on one worker per GPU, or on both. Each run must use its GPUs; runs on "
        "several workers must exchange gradients over NCCL. Finished runs are kept, so the same command continues "
        "after Ctrl-C. The exit code is 1 if anything is wrong.")
    parser.add_argument("--list", action="store_true", help="print the runs as commands and exit")
    parser.add_argument("--results", type=usage.path, metavar="DIR",
                        help="folder of the runs; by default gpu-HOST in the results folder")
    parser.add_argument("--keep", action="store_true",
                        help="also copy the records to data/reference_runs/HOST, to commit them")


def main(args: argparse.Namespace) -> int:
    """Run the acceptance test and return the exit code."""
    if args.list:
        for cell in cells(capacity.visible_gpus() or 1):
            print(" ".join(["labs run", cell.lab, "--workers", str(cell.workers), *command_line.to_argv(cell.config)]))
        return 0
    todo = cells(require_gpus())
    root = (args.results or results_dir() / f"gpu-{socket.gethostname()}").resolve()
    wrong = check_node()
    outcomes: list[Outcome] = []
    try:
        for outcome in accept(todo, root):
            outcomes.append(outcome)
    finally:  # After Ctrl-C, too: finished runs are shown and kept.
        if outcomes:
            print(f"\n{table(outcomes)}\n")
            print(f"summary: {shown(write_summary(root, wrong, outcomes))}")
    if args.keep:
        print(f"reference runs: {shown(keep(root, outcomes))}")
    failed = [each for each in outcomes if each.problems]
    print(f"{len(outcomes) - len(failed)} of {len(outcomes)} runs passed" +
          (f"; the node: {'; '.join(wrong)}" if wrong else ""), file=sys.stderr if failed or wrong else sys.stdout)
    return int(bool(failed or wrong))


def cells(gpus: int) -> list[Cell]:
    """Return the runs for a node with this many GPUs."""
    todo = []
    for name, values in RUNS.items():
        config = dataclasses.replace(catalogue.load_lab(name).presets["demo"], **values)
        counts = {1} if name in ALONE else set()
        todo += [Cell(name, config, workers) for workers in sorted(counts | ({gpus} if name in TOGETHER else set()))]
    return todo


def require_gpus() -> int:
    """Return the number of visible GPUs.

    Raises:
        LabError: There is none.
    """
    finding = machine.gpus()
    if finding.state != "ok":
        cause = finding.message.partition("; ")[0]
        raise LabError(f"no GPU to test ({cause}); run this on a GPU node: srun --gpus=1 --cpus-per-task=8 --time=20 "
                       "labs accept-gpu (--list shows what it runs)")
    return capacity.visible_gpus()


def check_node() -> list[str]:
    """Print the checks of `labs check` that concern a GPU node, and return what is wrong."""
    wrong = []
    for finding in command.findings(CHECKS, []):
        print(command.line(finding), flush=True)
        wrong += [finding.message] * (finding.state in ("warn", "fail"))
    return wrong


def accept(todo: Sequence[Cell], root: Path) -> Iterator[Outcome]:
    """Run each cell that has no record, and yield the outcome of every cell."""
    for cell in todo:
        print(f"{cell.lab} on {plural(cell.workers, 'worker')} ...", flush=True)
        run = root / cell.lab / cell.name
        if not finished(cell, root):
            with Utilization() as node:
                left = run_sweep(cell.lab, [cell], root)
            if left.elsewhere:
                yield Outcome(cell, ["another labs accept-gpu is running it"])
                continue
            if left.failed:
                yield Outcome(cell, [one_line(atomic.read_text(run / FAILED).strip())])
                continue
            atomic.write_json(run / USAGE, highest(node.samples))
        record = records.read(run)
        used = json.loads(atomic.read_text(run / USAGE)) if (run / USAGE).exists() else {}
        yield Outcome(cell, problems(record, used), record["timings"]["total_seconds"],
                      record["timings"]["images_per_sec"], used)


def highest(samples: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the largest value of each GPU's columns in Utilization's samples."""
    names = sorted({name for row in samples for name in row if name.startswith("gpu")})
    return {name: max(row[name] for row in samples if name in row) for name in names}


def problems(record: records.Record, used: Mapping[str, float]) -> list[str]:
    """Return every sign in a record that the GPUs were not used as they should be.

    Args:
        record: The run's record.
        used: From `highest`; empty if the driver reports nothing, as for a MIG instance.
    """
    layout, workers, wrong = record["layout"], record["layout"]["size"], []
    if not record["machine"].get("gpus"):
        wrong.append("TensorFlow saw no GPU and trained on the CPU")
    elif layout["gpus"] != workers:
        wrong.append(f"{plural(workers, 'worker')} had {plural(layout['gpus'], 'GPU')}: each needs its own")
    if workers > 1 and layout["backend"] != "NCCL":
        wrong.append(f"the gradients went over {layout['backend']}, not over NCCL")
    percents = _of(used, "percent")
    busy = sum(value > 0 for value in percents)
    if percents and busy < workers:
        wrong.append(f"the driver saw {busy} of {plural(workers, 'GPU')} busy")
    losses = [row["loss"] for row in record["history"] if "loss" in row]
    if losses and not math.isfinite(losses[-1]):
        wrong.append(f"the loss of the last epoch is {losses[-1]}")
    return wrong


def table(outcomes: Sequence[Outcome]) -> str:
    """Return a line per run: workers, seconds, throughput, the highest utilization and memory, the verdict."""
    lines = [f"{'run':17} {'workers':>7} {'seconds':>7} {'images/s':>9} {'GPU busy':>9} {'GPU memory':>11}  verdict"]
    for each in outcomes:
        percent = max(_of(each.usage, "percent"), default=None)
        memory = max(_of(each.usage, "memory_bytes"), default=None)
        columns = (f"{_shown(each.seconds):>7} {_shown(each.images_per_sec):>9} {_shown(percent, ' %'):>9} "
                   f"{_shown(memory and memory / 1e9, ' GB', 1):>11}")
        lines.append(f"{each.cell.lab:17} {each.cell.workers:7} {columns}  {'; '.join(each.problems) or 'ok'}")
    return "\n".join(lines)


def _of(used: Mapping[str, float], what: str) -> list[float]:
    return [value for name, value in used.items() if re.fullmatch(rf"gpu\d+_{what}", name)]


def _shown(value: float | None, unit: str = "", digits: int = 0) -> str:
    return "-" if value is None else f"{value:,.{digits}f}{unit}"


def write_summary(root: Path, wrong: Sequence[str], outcomes: Sequence[Outcome]) -> Path:
    """Write the results to acceptance.json, and return its path."""
    import pynvml

    path = root / SUMMARY
    try:
        driver, names = machine.driver()
    except pynvml.NVMLError:  # A GPU can fail during a run; the summary is still written.
        driver, names = "", []
    atomic.write_json(path, {
        "host": socket.gethostname(), "written": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "driver": driver, "gpus": names,
        "problems": list(wrong),
        "runs": [{"lab": each.cell.lab, "run": each.cell.name, "workers": each.cell.workers, "seconds": each.seconds,
                  "images_per_sec": each.images_per_sec, "usage": each.usage, "problems": each.problems}
                 for each in outcomes],
    })
    return path


def keep(root: Path, outcomes: Sequence[Outcome], folder: Path = reference.FOLDER) -> Path:
    """Copy the records and the summary to data/reference_runs/HOST, to commit them; return that folder."""
    host = socket.gethostname()
    runs = (root / each.cell.lab / each.cell.name for each in outcomes)
    reference.keep((records.read(run) for run in runs if (run / "record.json").exists()), host, folder)
    atomic.write_text(folder / host / SUMMARY, atomic.read_text(root / SUMMARY))
    return folder / host
