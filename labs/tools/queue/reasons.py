"""What Slurm's reason codes mean and what to do about each, and what to do where sbatch refuses a job."""

from __future__ import annotations

import fnmatch

NODES = "sinfo -o '%P %D %c %m %G %f %T'"
"""Prints the CPUs, memory, GPUs, features and states of all nodes."""
TOO_MUCH = f"it never starts: {{partition}} has too few such nodes; {NODES}, then scancel {{job}} and ask for less"

# Searched from top to bottom; a star stands for anything: there are many QOS and association limits of each kind.
REASONS = {
    "None": "just submitted: Slurm has not looked at it yet; look again in a minute",
    "Priority": "behind other jobs in the queue, not stuck; a shorter limit may fit into a gap before them: scontrol "
                "update jobid={job} timelimit=00:15:00",
    "Resources": "it waits until enough nodes, CPUs or GPUs are free; a shorter limit may fit into a gap: scontrol "
                 "update jobid={job} timelimit=00:15:00",
    "Nodes required for job are*": "the nodes that it needs are down, or kept for jobs before it; wait, or use another "
                                   "partition: sinfo -s",
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
    "JobHoldMaxRequeue": "it was requeued too often and is held; read its log, then scontrol release {job}",
    "*requeued held*": "a node could not start it, so it is held; scontrol release {job}; if it comes back, tell the "
                       "help desk the node's name",
    "DependencyNeverSatisfied": "it never starts, because {dependency} cannot be fulfilled any more; scancel {job}",
    "Dependency": "it waits for other jobs ({dependency}); without the condition: scontrol update jobid={job} "
                  "dependency=",
    "BeginTime": "it was submitted to begin later (--begin), or is paused after a requeue; at once: scontrol update "
                 "jobid={job} starttime=now",
    "JobArrayTaskLimit": "its array runs a limited number of jobs at a time (--array=...%N); wait",
    "Reservation": "its reservation has not begun; when it begins: scontrol show reservation",
    "Invalid*": "its account or --qos is not one of yours; yours: sacctmgr show assoc user=$USER format=account,qos",
    "*QOSNotAllowed": "{partition} does not take its --qos; scontrol show partition {partition}",
    "*Max*WallDuration*": "its limit {limit} is above what you may ask for; scontrol update jobid={job} "
                          "timelimit=01:00:00",
    "*Max[JS]*": "you have as many jobs as you are allowed; wait until some have ended",
    "*Per[UA]*": "your jobs together have as many {what} as they may use; wait until some have ended",
    "*Max*": "it never starts, because it asks for more {what} than one job may; scancel {job}, and ask for less",
    "*Grp*": "the jobs of your account or --qos together have used up their {what}; wait, or ask the account's owner",
}
KINDS = {"cpu": "CPUs", "gres": "GPUs", "mem": "memory", "node": "nodes", "wall": "time", "job": "jobs",
         "billing": "billing units"}
"""What a limit counts, by a part of its code."""

REFUSALS = {
    "node configuration|feature": f"what nodes have, and which are up: {NODES}",
    "partition": "choose one that is up: sinfo -s; then --partition=NAME",
    "time limit": "the partitions' limits: sinfo -o '%P %l'; then --time=LIMIT",
    "account|qos": "yours: sacctmgr show assoc user=$USER format=account,qos",
    "Unable to open file": "sbatch's options come before the job file, the lab's after it",
    "script is empty": "name a job file: labs queue --check -N 2 jobs/lab10_caltech.sh",
}
"""Cures by what sbatch's message contains, as regular expressions."""


def explain(reason: str, **facts: str) -> str:
    """Return what a reason code of squeue means, and a cure; `facts` are the values of its placeholders.

    Words behind a comma are details: "ReqNodeNotAvail, UnavailableNodes:node2".
    """
    code, _, detail = reason.replace("_", " ").partition(",")
    text = next((text for pattern, text in REASONS.items() if fnmatch.fnmatchcase(code, pattern)),
                "see JOB REASON CODES in man squeue; scontrol show job {job}")
    counted = next((words for part, words in KINDS.items() if part in code.lower()), "of something")
    return text.format(what=counted, **facts) + (f" ({detail.strip()})" if "UnavailableNodes" in detail else "")
