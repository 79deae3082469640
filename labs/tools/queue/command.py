"""Explain why your Slurm jobs wait; with --check, check a job before you submit it."""

from __future__ import annotations

import argparse
import shlex
import sys

from labs.run import cluster_state, slurm
from labs.run.errors import CURE_SEPARATOR, LabError
from labs.tools.queue import queue


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `labs queue`."""
    parser.description = ("Explain why your Slurm jobs wait, when they are expected to start, and what to change. "
                          "PD (Priority) means that a job is behind other jobs; it is not stuck.")
    parser.add_argument("jobs", nargs="*", metavar="JOB", help="job ids; default: all your jobs")
    parser.add_argument("--user", help="whose jobs; default: yours")
    parser.add_argument("--check", nargs=argparse.REMAINDER, metavar="...",
                        help="check a job before you submit it; takes the arguments of sbatch: "
                             "`labs queue --check -N 2 jobs/lab10_caltech.sh`. Reports what is wrong (exit code 1), "
                             "or where and when the job would start; submits nothing")


def main(args: argparse.Namespace) -> int:
    """Print a report on the jobs and return the exit code.

    Raises:
        LabError: There is no Slurm here; the cure names a cluster inside this machine if one is up.
    """
    try:
        return queue.main(args.jobs, args.user, args.check)
    except slurm.NoSlurmError as problem:
        cluster = cluster_state.current()
        if not cluster or not cluster.slurm or cluster_state.inside():
            raise
        cause = str(problem).partition(CURE_SEPARATOR)[0]
        words = shlex.join(["labs", *sys.argv[1:]])
        raise LabError(f"{cause}; to ask the cluster inside this machine: labs cluster shell -- {words}") from None
