"""The queue as Slurm shows it: jobs, their times, trial submissions, and what would start a job sooner."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from labs.run.slurm import Partition, gpus, run, table

# Columns with a separator, not JSON: they are the same in every Slurm, and 22.05's JSON lacks half of them.
JOB_FORMAT = "%i|%F|%T|%P|%l|%M|%D|%C|%m|%h|%Q|%S|%b|%a|%q|%E|%R|%r|%j"

LONG_SECONDS = 600
"""A shorter limit is suggested only to jobs with at least this limit."""


@dataclass(frozen=True)
class QueuedJob:
    """A job in the queue, as squeue shows it."""

    id: str
    base: str
    """The number that commands take: "12" for all of the array "12_[0-7]"."""
    state: str
    partition: str
    limit: str
    used: str
    nodes: str
    cpus: str
    memory: str
    shared: str
    """"NO" for a job that wants whole nodes."""
    priority: str
    start: str
    gres: str
    account: str
    qos: str
    dependency: str
    node_list: str
    """Its nodes; for a waiting job, Slurm's reason in brackets."""
    reason: str
    name: str

    @property
    def number(self) -> str:
        """Its number for scontrol and scancel."""
        return self.base if "[" in self.id else self.id


def jobs(*filters: str) -> list[QueuedJob]:
    """Return the jobs in the queue that pass squeue's filters."""
    # Without --noconvert, squeue writes 1024 CPUs as "1K".
    return [QueuedJob(*row) for row in table("squeue", "--noheader", "--noconvert", *filters, f"--format={JOB_FORMAT}")]


def seconds(limit: str) -> float:
    """Return a time limit in seconds; Slurm writes minutes, [D-]H:M:S, M:S or D-H, and a word for "no limit".

    Raises:
        ValueError: It is none of these.
    """
    if re.fullmatch(r"(?i)unlimited|infinite|-1", limit):
        return math.inf
    if not re.fullmatch(r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}", limit):
        raise ValueError(limit)
    days, _, rest = limit.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if days:
        hours, minutes, rest_seconds = [*parts, 0, 0][:3]
    else:  # Without days one number is minutes, and two are minutes and seconds.
        hours, minutes, rest_seconds = {1: [0, *parts, 0], 2: [0, *parts], 3: parts}[len(parts)]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + rest_seconds


def start(text: str) -> datetime.datetime | None:
    """Return the start that Slurm expects, or None if it has no estimate.

    Behind a job without a time limit Slurm names a day at least a year away, which is of no use for planning.
    """
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if moment - datetime.datetime.now() > datetime.timedelta(days=300) else moment


def when(moment: datetime.datetime) -> str:
    """Write a moment as a person would: "Sat 21 Nov 14:05, in 25 min"."""
    minutes = round((moment - datetime.datetime.now()).total_seconds() / 60)
    size, unit = next((size, unit) for size, unit in ((1440, "days"), (60, "h"), (1, "min")) if minutes >= 2 * size or
                      size == 1)
    return "now" if minutes < 1 else f"{moment:%a %d %b %H:%M}, in {minutes // size} {unit}"


@dataclass(frozen=True)
class Trial:
    """What `sbatch --test-only` answered; nothing was submitted."""

    problem: str
    """Why Slurm would refuse the job; empty if it would accept it."""
    start: datetime.datetime | None = None
    """None if Slurm has no usable estimate."""
    nodes: str = ""
    partition: str = ""


def trial(*args: str) -> Trial:
    """Ask Slurm whether it would accept a job, and when the job would start."""
    code, out, errors = run("sbatch", "--test-only", *args)
    answer = out + errors
    accepted = re.search(r"to start at (\S+) using \d+ processors on(?: nodes)? (\S+) in partition (\S+)", answer)
    if code or not accepted:
        lines = [line for line in answer.strip().splitlines() if not line.startswith("Try ")]
        return Trial(re.sub(r"^(sbatch|allocation failure)(: error)?: ", "", lines[-1]) if lines else "no reason given")
    return Trial("", start(accepted[1]), accepted[2], accepted[3])


def suggestions(job: QueuedJob, partitions: Mapping[str, Partition], trials: int) -> list[str]:
    """Return what would start a job sooner, as lines with a command.

    Args:
        job: A job that waits for free nodes.
        partitions: By name.
        trials: How many other partitions to try; 0 tries nothing.
    """
    lines, expected = [], start(job.start)
    others = [name for name, each in partitions.items() if name not in job.partition.split(",") and each.state == "UP"]
    for partition in others[:trials]:
        answer = trial(*sbatch_args(job, partition))
        if answer.start and (expected is None or (expected - answer.start).total_seconds() > 60):
            lines.append(f"sooner in partition {partition} ({when(answer.start)}): "
                         f"scontrol update jobid={job.number} partition={partition}")
    limit = seconds(job.limit)
    if limit >= LONG_SECONDS:  # Slurm fits short jobs into gaps before longer ones.
        half = 4 * 3600 if math.isinf(limit) else int(limit) // 2
        lines.append(f"if less time is enough, a shorter limit may let it start sooner: scontrol update "
                     f"jobid={job.number} timelimit={half // 3600:02}:{half // 60 % 60:02}:{half % 60:02}")
    return lines


def sbatch_args(job: QueuedJob, partition: str) -> list[str]:
    """Return sbatch's arguments for what a job asks for, in a partition."""
    nodes, count = int(job.nodes), gpus(job.gres)
    cpus = -(-int(job.cpus) // nodes)
    args = [f"--partition={partition}", f"--nodes={nodes}", "--ntasks-per-node=1", f"--cpus-per-task={cpus}"]
    args += [f"--gpus-per-node={count}"] if count else []
    args += ["--exclusive"] if job.shared == "NO" else []
    settings = {"account": job.account, "qos": job.qos, "mem": job.memory}
    args += [f"--{name}={value}" for name, value in settings.items() if value not in ("", "0", "(null)", "N/A")]
    return [*args, f"--time={job.limit}", "--wrap=true"]
