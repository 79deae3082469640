"""Explain why your Slurm jobs wait; with --check, check a job before you submit it."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys
from collections.abc import Mapping, Sequence

from labs.run import cluster_state, slurm, terminal
from labs.run.errors import CURE_SEPARATOR, ERROR_PREFIX, LabError
from labs.run.paths import user_name
from labs.run.slurm import Node, Partition
from labs.run.text import plural, printable
from labs.tools.queue import precheck, reasons, sbatch_parser, site
from labs.tools.queue.site import QueuedJob

MOST_TRIALS = 6  # Everybody shares Slurm's controller.


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
        return _list(args.jobs, args.user or user_name()) if args.check is None else _check(args.check)
    except slurm.NoSlurmError as problem:
        cluster = cluster_state.current()
        if not cluster or not cluster.slurm or cluster_state.inside():
            raise
        cause = str(problem).partition(CURE_SEPARATOR)[0]
        words = shlex.join(["labs", *sys.argv[1:]])
        raise LabError(f"{cause}; to ask the cluster inside this machine: labs cluster shell -- {words}") from None


def _list(numbers: Sequence[str], user: str) -> int:
    """Explain the jobs with these numbers, or all jobs of a user."""
    shown = _select(numbers) if numbers else site.jobs(f"--user={user}")
    if not shown:
        print(f"no jobs of {user} in the queue; finished ones: sacct, or labs results")
        return 0
    # What everybody's jobs wait for, as far as this site lets one see it; the jobs of an array one by one.
    waiting, partitions, nodes = site.jobs("--states=PENDING", "--array"), slurm.partitions(), slurm.nodes()
    trials = MOST_TRIALS
    for job in shown:
        print(terminal.folded(_head(job), 4))
        if job.state == "PENDING":
            for line in explain(job, waiting, partitions, nodes, trials):
                print(terminal.folded(f"    {line}", 6))
            trials = max(0, trials - len(partitions)) if reasons.waits_for_nodes(job.reason) else trials
    return 0


def _check(args: Sequence[str]) -> int:
    """Check a job before it is submitted; print all problems, or when and where it would start."""
    problems, summary = precheck.check(args)
    for problem in problems:
        print(f"{ERROR_PREFIX}{printable(problem)}", file=sys.stderr)
    for line in summary:
        print(terminal.folded(line, 4))
    return int(bool(problems))


def _select(jobs: Sequence[str]) -> list[QueuedJob]:
    """Return the jobs with these numbers."""
    wrong = [number for number in jobs if not number.replace("_", "").isdigit()]
    if wrong:
        raise LabError(f"{wrong[0]!r} is not a job number; `labs queue` alone shows yours; "
                       "to check a job file: labs queue --check FILE")
    shown = [job for job in site.jobs() if {job.id, job.base} & {*jobs}]
    # A waiting task "12_3" is hidden in its array's entry "12_[0-7]".
    if tasks := {number for number in jobs if "_" in number} - {job.id for job in shown}:
        shown += [job for job in site.jobs("--array") if job.id in tasks]
    if gone := {*jobs} - {name for job in shown for name in (job.id, job.base)}:
        raise LabError(f"no job {', '.join(sorted(gone))} in the queue: finished or never submitted; "
                       f"how it ended: sacct -j {','.join(sorted(gone))}")
    return shown


def _head(job: QueuedJob) -> str:
    """Return a job's first line."""
    state = f"PENDING ({job.reason})" if job.state == "PENDING" else f"{job.state} on {job.node_list}"
    clock = f"limit {job.limit}" if job.state == "PENDING" else f"{job.used} of {job.limit}"
    count = f"{plural(int(job.nodes), 'node')}, {plural(int(job.cpus), 'CPU')}"
    return f"{job.id}  {job.name}  {state}  partition {job.partition}, {count}, {clock}"


def explain(job: QueuedJob, waiting: Sequence[QueuedJob], partitions: Mapping[str, Partition], nodes: Sequence[Node],
            trials: int = 0) -> list[str]:
    """Return lines in plain words: why a job waits, until when, and what to change.

    Args:
        job: The waiting job.
        waiting: All waiting jobs.
        partitions: By name.
        nodes: Each once per partition.
        trials: How many other requests may be tried with `sbatch --test-only`.
    """
    reason, facts = reasons.meaning(job.reason), _facts(job, partitions, nodes)
    if never := _never(job, partitions, nodes):
        cure = job.reason if job.reason in ("PartitionTimeLimit", "PartitionNodeLimit") else "PartitionConfig"
        return [*never, f"to do: {reasons.REASONS[cure].cure.format(**facts)}"]
    if reason is None:
        return [f"{job.reason}: a reason that labs does not know; more: scontrol show job {job.number}, "
                "man squeue (JOB REASON CODES)", *_expected_start(job)]
    lines = [f"{reason.meaning.format(**facts)}{_detail(job)}"]
    if reason.for_nodes:
        ahead = _count_ahead(job, waiting)
        who = "1 job is" if ahead == 1 else f"{ahead} jobs are"
        lines[0] += f"; {who if ahead else 'no waiting job is'} ahead of it in {job.partition}"
    lines += _expected_start(job)
    if reason.cure:
        lines.append(f"to do: {reason.cure.format(**facts)}")
    return lines + (site.suggestions(job, partitions, trials) if reason.for_nodes else [])


def _never(job: QueuedJob, partitions: Mapping[str, Partition], nodes: Sequence[Node]) -> list[str]:
    """Return why a job can never start in any of its partitions; an empty list if it can."""
    names = job.partition.split(",")
    problems = [_never_in(job, partitions[name], [node for node in nodes if node.partition == name])
                for name in names if name in partitions]
    return problems[0] if len(problems) == len(names) and all(problems) else []


def _never_in(job: QueuedJob, partition: Partition, nodes: Sequence[Node]) -> list[str]:
    """Return why a job can never start in a partition with these nodes; an empty list if it can.

    squeue shows the fewest nodes that a job may get: 1 for `sbatch -n 8`, which runs on four nodes of 2 CPUs, too.
    """
    most_cpus = max([1, *(node.cpus for node in nodes)])
    spread = dataclasses.replace(job, nodes=str(max(int(job.nodes), -(-int(job.cpus) // most_cpus))))
    as_shown, as_spread = (
        precheck.never(sbatch_parser.read(site.sbatch_args(each, job.partition), {}, f"job {job.number}"),
                       partition, nodes) for each in (job, spread))
    return as_shown if as_spread else []


def _facts(job: QueuedJob, partitions: Mapping[str, Partition], nodes: Sequence[Node]) -> dict[str, str]:
    """Return the values of the placeholders in a reason's texts."""
    partition = partitions.get(job.partition.partition(",")[0])
    return {
        "job": job.number, "partition": job.partition, "limit": job.limit, "nodes": plural(int(job.nodes), "node"),
        "dependency": job.dependency, "what": reasons.limited_resource(job.reason),
        "max_time": partition.max_time if partition else "limit",
        "max_nodes": str(partition.most_nodes([node for node in nodes if node.partition == partition.name])
                         if partition else "N"),
    }


def _detail(job: QueuedJob) -> str:
    """Return what Slurm adds to a reason, such as the nodes that are down."""
    detail = "" if job.reason.startswith("Nodes required") else job.reason.partition(",")[2].strip()
    return f" ({detail.replace('UnavailableNodes:', 'not available: ')})" if detail else ""


def _count_ahead(job: QueuedJob, waiting: Sequence[QueuedJob]) -> int:
    """Count the jobs that wait for nodes of the same partition with a higher priority, or the same one and earlier."""
    mine = set(job.partition.split(","))
    first = min((_order(each) for each in waiting if each.base == job.base), default=_order(job))
    rivals = [each for each in waiting if each.base != job.base and mine & {*each.partition.split(",")}]
    return sum(reasons.waits_for_nodes(each.reason) and _order(each) < first for each in rivals)


def _order(job: QueuedJob) -> tuple[int, int]:
    return -int(job.priority), int(job.base)


def _expected_start(job: QueuedJob) -> list[str]:
    """Return when Slurm expects to start a job: what `squeue --start` shows."""
    if moment := site.start(job.start):
        return [f"expected start: {site.when(moment)} (Slurm's estimate; earlier if jobs end before their limits)"]
    if not reasons.waits_for_nodes(job.reason):
        return []
    why = "a job ahead of it has no time limit" if job.start[:1].isdigit() else "Slurm has not computed it yet"
    return [f"expected start: unknown: {why}"]
