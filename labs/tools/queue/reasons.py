"""What Slurm's reason codes mean, in plain words, and what a student can do about each. Imports no TensorFlow."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass


@dataclass(frozen=True)
class Reason:
    """Why a job waits, and the cure; `cure` may name {job}, {partition}, {limit}, {max_time}, {max_nodes}, ..."""

    meaning: str
    cure: str = ""
    for_nodes: bool = False
    """Whether it waits for free nodes, which another, a smaller or a shorter request might get sooner."""


AGAIN = "scancel {job}, and submit it again with"
TOO_MANY = Reason("you have as many jobs as you are allowed", "wait until some have ended")

# Searched from top to bottom; a star stands for anything: there are many QOS and association limits of each kind.
REASONS = {
    "None": Reason("just submitted: Slurm has not looked at it yet", "look again in a minute"),
    "Priority": Reason("behind other jobs in the queue, not stuck", for_nodes=True),
    "Resources": Reason("it waits until enough nodes, CPUs or GPUs are free", for_nodes=True),
    "PartitionTimeLimit": Reason(
        "its time limit {limit} is above the partition's {max_time}: it will never start",
        "scontrol update jobid={job} timelimit={max_time}; a longer run can continue with --resume"),
    "PartitionNodeLimit": Reason(
        "it asks for {nodes}, but a job in {partition} may have at most {max_nodes}: it will never start",
        "scontrol update jobid={job} numnodes={max_nodes}-{max_nodes}, or scancel {job} and submit it with fewer (-N)"),
    "PartitionConfig": Reason(
        "it asks for more than the partition {partition} has: it will never start",
        "what nodes have: sinfo -o '%P %D %c %m %G'; then " + AGAIN + " what there is"),
    "PartitionDown": Reason("the partition {partition} is switched off", "wait, or use another: sinfo -s"),
    "PartitionInactive": Reason(
        "the partition {partition} takes no jobs at present", "wait, or use another: sinfo -s"),
    "JobHeldUser": Reason(
        "you are holding it back (sbatch --hold or scontrol hold)", "scontrol release {job}"),
    "JobHeldAdmin": Reason(
        "held back by an administrator; you cannot release it", "ask the site's help desk why"),
    "JobHoldMaxRequeue": Reason("it was requeued too often and is held", "read its log, then scontrol release {job}"),
    "*requeued held*": Reason(
        "a node could not start it, so it is held: often a broken node or a missing folder",
        "scontrol release {job}; if it comes back, tell the help desk the node's name"),
    "DependencyNeverSatisfied": Reason(
        "it waits for {dependency}, which can no longer be fulfilled: it will never start",
        "scancel {job}, or drop the condition: scontrol update jobid={job} dependency="),
    "Dependency": Reason(
        "it waits for other jobs: {dependency}",
        "wait; without the condition: scontrol update jobid={job} dependency="),
    "BeginTime": Reason(
        "it was submitted to begin later (--begin), or was requeued and is paused briefly",
        "wait; at once: scontrol update jobid={job} starttime=now"),
    "JobArrayTaskLimit": Reason("the array limits how many of its jobs run at a time (--array=...%N)", "wait"),
    "ReqNodeNotAvail": Reason(
        "nodes that it needs are down, drained, or reserved for maintenance that begins before it would end",
        "wait; a shorter limit may fit in before (scontrol update jobid={job} timelimit=00:30:00); if it named nodes "
        "(-w), any will do: scontrol update jobid={job} reqnodelist="),
    "Nodes required for job are*": Reason(
        "the nodes that it needs are down, drained, or kept for jobs before it in another partition",
        "wait, or use another partition: sinfo -s", for_nodes=True),
    "BadConstraints": Reason(
        "no node has what it asks for (--constraint, --mem, --gres): it will never start",
        "what nodes have: sinfo -o '%P %D %c %m %G %f'; then " + AGAIN + " what there is"),
    "Reservation": Reason(
        "its reservation has not begun", "wait; when it begins: scontrol show reservation"),
    "InvalidAccount": Reason(
        "the account that should pay is not one of yours",
        "yours: sacctmgr show assoc user=$USER format=account; then scontrol update jobid={job} account=NAME"),
    "InvalidQOS": Reason(
        "the quality of service (--qos) is not one of yours",
        "yours: sacctmgr show assoc user=$USER format=qos; then scontrol update jobid={job} qos=NAME"),
    "QOSNotAllowed": Reason(
        "the partition {partition} does not take this quality of service (--qos)",
        "which it takes: scontrol show partition {partition}; then scontrol update jobid={job} qos=NAME"),
    "*Max*WallDuration*": Reason(
        "its time limit {limit} is above what you may ask for", "scontrol update jobid={job} timelimit=01:00:00"),
    "*MaxJobs*": TOO_MANY, "*MaxSubmit*": TOO_MANY,
    "*Per[UA]*": Reason("your jobs, or your account's, together have as many {what} as they may use at a time",
                        "ask for less, or wait until some of them have ended"),
    "*Max*": Reason("this job alone asks for more {what} than you are allowed: it will never start", AGAIN + " fewer"),
    "QOSGrp*": Reason(
        "all jobs of this --qos together have used up its {what}", "wait, or use another partition or --qos"),
    "AssocGrp*": Reason(
        "the jobs of your account together have used up its {what}; with Minutes in the code it is a budget",
        "wait; whose and how much: sshare -A ACCOUNT, sacctmgr show assoc; a spent budget: ask its owner"),
}

KINDS = {
    "cpu": "CPUs", "gres": "GPUs", "mem": "memory", "node": "nodes", "wall": "time", "job": "jobs",
    "billing": "billing units",
}


def meaning(reason: str) -> Reason | None:
    """Return what a reason code means, or None for one that is not known here.

    Args:
        reason: As squeue prints it; words behind a comma are details ("ReqNodeNotAvail, UnavailableNodes:node2").
    """
    code = reason.strip("()").replace("_", " ")
    for pattern, reason_text in REASONS.items():
        if fnmatch.fnmatchcase(code.partition(",")[0], pattern) or fnmatch.fnmatchcase(code, pattern):
            return reason_text
    return None


def waits_for_nodes(reason: str) -> bool:
    """Return whether a job with this reason waits for nodes, CPUs or GPUs, and for nothing else."""
    known = meaning(reason)
    return known is not None and known.for_nodes


def limited_resource(reason: str) -> str:
    """Return what a limit's code counts: "CPUs" of QOSMaxCpuPerUserLimit."""
    return next((words for part, words in KINDS.items() if part in reason.lower()), "of something")
