"""Explain why your Slurm jobs wait; with --check, ask Slurm about a job before you submit it."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence

from labs.run import slurm
from labs.run.errors import LabError
from labs.run.text import printable
from labs.tools.queue import reasons

COLUMNS = "%i|%A|%T|%P|%D|%l|%S|%N|%E|%r|%j"
"""squeue's: id, number, state, partition, nodes, limit, start, its nodes, dependency, reason, name."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `labs queue`."""
    parser.description = ("Explain why your Slurm jobs wait, when Slurm expects to start them, and what to change. "
                          "PD (Priority) means that a job is behind other jobs; it is not stuck.")
    parser.add_argument("jobs", nargs="*", metavar="JOB", help="job ids; default: all your jobs")
    parser.add_argument("--check", nargs=argparse.REMAINDER, metavar="...",
                        help="takes the arguments of sbatch: `labs queue --check -N 2 jobs/lab10_caltech.sh`. Prints "
                             "where and when Slurm would start the job, or why it refuses it; submits nothing")


def main(args: argparse.Namespace) -> None:
    """Print a line per job and what it waits for, or Slurm's answer about a job that is not submitted yet."""
    lines = _explained(args.jobs) if args.check is None else _tested(args.check)
    print(*map(printable, lines), sep="\n")


def _explained(numbers: Sequence[str]) -> list[str]:
    """Return the lines on the jobs with these numbers, or on all jobs of this user."""
    if wrong := [number for number in numbers if not number[:1].isdigit()]:
        raise LabError(f"{wrong[0]!r} is not a job number; to check a job file: labs queue --check FILE")
    which = f"--jobs={','.join(numbers)}" if numbers else "--me"
    jobs = slurm.rows("squeue", "--noheader", which, f"--format={COLUMNS}")
    longest = dict(slurm.rows("sinfo", "--noheader", "--format=%R|%l"))
    lines = []
    for job_id, job, state, partition, nodes, limit, start, here, dependency, reason, *name in jobs:
        head = f"{job_id}  {'|'.join(name)}  {state} " + (f"({reason})" if state == "PENDING" else f"on {here}")
        lines.append(f"{head}  partition {partition}, nodes: {nodes}, limit: {limit}")
        if state == "PENDING":
            why = reasons.explain(reason, job=job, partition=partition, limit=limit, dependency=dependency,
                                  longest=longest.get(partition.partition(",")[0], "TIME"))
            lines += [f"    {why}", *([f"    expected start: {start}"] if start[:1].isdigit() else [])]
    return lines or ["no such job is in the queue; finished ones: sacct, or labs results"]


def _tested(words: Sequence[str]) -> list[str]:
    """Return when and where a job would start.

    Args:
        words: What would follow `sbatch`.

    Raises:
        LabError: sbatch would refuse it.
    """
    code, out, errors = slurm.run("sbatch", "--test-only", *words)
    answer = re.sub(r"(?m)^(sbatch|allocation failure): (error: )?|^Try .*", "", out + errors)
    if code:
        cure = next((cure for text, cure in reasons.REFUSALS.items() if re.search(text, answer)), "man sbatch")
        raise LabError(f"sbatch would refuse it: {' '.join(answer.split())}; {cure}")
    return [re.sub(r"^Job \d+", "it is expected", " ".join(answer.split())), f"submit it: sbatch {shlex.join(words)}"]
