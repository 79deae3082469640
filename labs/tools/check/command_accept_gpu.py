"""Test a GPU node in about ten minutes: short runs of five labs, which must use its GPUs."""

from __future__ import annotations

import argparse
import sys

from labs.launch import capacity
from labs.run import command_line, usage
from labs.run.paths import shown
from labs.tools.check import gpu_node


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
                        help="copy the records to data/reference/gpu/HOST, as reference runs to commit")


def main(args: argparse.Namespace) -> int:
    """Run the acceptance test and return the exit code."""
    if args.list:
        _show(gpu_node.cells(capacity.visible_gpus() or 1))
        return 0
    todo = gpu_node.cells(gpu_node.require_gpus())
    root = (args.results or gpu_node.folder()).resolve()
    wrong = gpu_node.check_node()
    outcomes: list[gpu_node.Outcome] = []
    try:
        for outcome in gpu_node.accept(todo, root):
            outcomes.append(outcome)
    finally:  # After Ctrl-C, too: finished runs are shown and kept.
        if outcomes:
            print(f"\n{gpu_node.table(outcomes)}\n")
            print(f"summary: {shown(gpu_node.write_summary(root, wrong, outcomes))}")
    if args.keep:
        print(f"reference runs: {shown(gpu_node.keep(root, outcomes))}")
    failed = [each for each in outcomes if each.problems]
    print(f"{len(outcomes) - len(failed)} of {len(outcomes)} runs passed" +
          (f"; the node: {'; '.join(wrong)}" if wrong else ""), file=sys.stderr if failed or wrong else sys.stdout)
    return int(bool(failed or wrong))


def _show(todo: list[gpu_node.Cell]) -> None:
    for cell in todo:
        print(" ".join(["labs run", cell.lab, "--workers", str(cell.workers), *command_line.to_argv(cell.config)]))
