"""Explain why your Slurm jobs wait; with --check, ask Slurm about a job before you submit it."""

import argparse
import fnmatch
import re
import shlex
from collections.abc import Sequence

from labs.run import slurm
from labs.run.errors import LabError, printable

COLUMNS = "%i|%A|%T|%P|%D|%l|%S|%N|%E|%r|%j"
"""squeue's: id, number, state, partition, nodes, limit, start, its nodes, dependency, reason, name."""
NODES = "sinfo -o '%P %D %c %m %G %f %T'"  # Prints the CPUs, memory, GPUs, features and states of all nodes.
TOO_MUCH = f"it never starts: {{partition}} has too few such nodes; {NODES}, then scancel {{job}} and ask for less"
# Searched from top to bottom; a star stands for anything: there are many QOS and association limits of each kind.
REASONS = {
    "None": "just submitted: Slurm has not looked at it yet; look again in a minute",
    "Priority": "behind other jobs in the queue, not stuck; a shorter limit may fit into a gap before them: scontrol "
                "update jobid={job} timelimit=00:15:00",
    "Resources": "it waits until enough nodes, CPUs or GPUs are free; a shorter limit may fit into a gap: scontrol "
                 "update jobid={job} timelimit=00:15:00",
    "ReqNodeNotAvail": "nodes that it needs are down, drained or reserved; wait; if the job names nodes (-w), let it "
                       "take any: scontrol update jobid={job} reqnodelist=",
    "PartitionTimeLimit": "it never starts, because its limit {limit} is above that of partition {partition}; scontrol "
                          "update jobid={job} timelimit={longest}, and continue the run with --resume",
    "PartitionNodeLimit": "it never starts, because a job in {partition} may not have that many nodes; scontrol show "
                          "partition {partition}, then scancel {job} and submit it with fewer (-N)",
    "PartitionConfig": TOO_MUCH, "BadConstraints": TOO_MUCH,
    "Partition*": "the partition {partition} starts no jobs at present; wait, or use another: sinfo -s",
    "JobHeldUser": "you are holding it back; scontrol release {job}",
    "JobHeldAdmin": "an administrator is holding it back; ask the site's help desk why",
    "DependencyNeverSatisfied": "it never starts, because {dependency} cannot be fulfilled any more; scancel {job}",
    "Dependency": "it waits for other jobs ({dependency})",
    "BeginTime": "it was submitted to begin later (--begin), or is paused after a requeue; at once: scontrol update "
                 "jobid={job} starttime=now",
    "*Max*WallDuration*": "its limit {limit} is above what you may ask for; scontrol update jobid={job} "
                          "timelimit=01:00:00",
    "*Max[JS]*": "you have as many jobs as you are allowed; wait until some have ended",
    "*Per[UA]*": "your jobs together have as many CPUs, GPUs or nodes as they may use; wait until some have ended",
    "*Max*": "it never starts, because it asks for more than one job may; scancel {job}, and ask for less",
    "*Grp*": "the jobs of your account or --qos together have used up their share; wait, or ask the account's owner",
    "*": "see JOB REASON CODES in man squeue; scontrol show job {job}",
}
REFUSALS = {
    "node configuration|feature": f"what nodes have, and which are up: {NODES}",
    "partition": "choose one that is up: sinfo -s; then --partition=NAME",
    "time limit": "the partitions' limits: sinfo -o '%P %l'; then --time=LIMIT",
    "account|qos": "yours: sacctmgr show assoc user=$USER format=account,qos",
    "Unable to open file": "sbatch's options come before the job file, the lab's after it",
    "": "man sbatch",
}
"""Cures by what sbatch's message contains, as regular expressions."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `labs queue`."""
    parser.description = ("Explain why your Slurm jobs wait, when Slurm expects to start them, and what to change. "
                          "PD (Priority) means that a job is behind other jobs; it is not stuck.")
    parser.add_argument("jobs", nargs="*", metavar="JOB", help="job ids; default: all your jobs")
    parser.add_argument("--check", nargs=argparse.REMAINDER, metavar="...",
                        help="sbatch's arguments, such as -N 2 jobs/lab10_caltech.sh: print where and when Slurm would "
                             "start the job, or why it refuses it; submit nothing")


def main(args: argparse.Namespace) -> None:
    """Print a line per job and what it waits for, or Slurm's answer about a job that is not submitted yet."""
    lines = explain_jobs(args.jobs) if args.check is None else check_job(args.check)
    print(*map(printable, lines), sep="\n")


def explain_jobs(numbers: Sequence[str]) -> list[str]:
    """Return the lines on the jobs with these numbers, or on all jobs of this user."""
    which = f"--jobs={','.join(numbers)}" if numbers else "--me"
    jobs = slurm.rows("squeue", "--noheader", which, f"--format={COLUMNS}")
    longest = dict(slurm.rows("sinfo", "--noheader", "--format=%R|%l"))
    lines = []
    for job_id, job, state, partition, nodes, limit, start, here, dependency, reason, *name in jobs:
        head = f"{job_id}  {'|'.join(name)}  {state} " + (f"({reason})" if state == "PENDING" else f"on {here}")
        lines.append(f"{head}  partition {partition}, nodes: {nodes}, limit: {limit}")
        if state == "PENDING":
            why = explain_reason(reason, job=job, partition=partition, limit=limit, dependency=dependency,
                                 longest=longest.get(partition.partition(",")[0], "TIME"))
            lines += [f"    {why}", *([f"    expected start: {start}"] if start[:1].isdigit() else [])]
    return lines or ["no such job is in the queue; finished ones: sacct, or labs results"]


def explain_reason(reason: str, **facts: str) -> str:
    """Return what a reason code of squeue means, and a cure; `facts` are the values of its placeholders."""
    code, _, detail = reason.replace("_", " ").partition(",")  # "ReqNodeNotAvail, UnavailableNodes:node2"
    text = next(text for pattern, text in REASONS.items() if fnmatch.fnmatchcase(code, pattern))
    return text.format(**facts) + (f" ({detail.strip()})" if "UnavailableNodes" in detail else "")


def check_job(words: Sequence[str]) -> list[str]:
    """Return when and where a job would start that `sbatch` followed by these words submits."""
    code, out, errors = slurm.run("sbatch", "--test-only", *words)
    answer = " ".join(re.sub(r"(?m)^(sbatch|allocation failure): (error: )?|^Try .*", "", out + errors).split())
    if code:
        cure = next(cure for text, cure in REFUSALS.items() if re.search(text, answer))
        raise LabError(f"sbatch would refuse it: {answer}; {cure}")
    return [re.sub(r"^Job \d+", "it is expected", answer), f"submit it: sbatch {shlex.join(words)}"]
