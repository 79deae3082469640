"""Ways to start a waiting job sooner: another partition, tried with `sbatch --test-only`, or a shorter limit."""

from __future__ import annotations

import datetime
from collections.abc import Mapping

from labs.run import slurm
from labs.tools.queue import site
from labs.tools.queue.site import Job

LONG_SECONDS = 600
"""A shorter limit needs no halving."""


def suggestions(job: Job, partitions: Mapping[str, slurm.Partition], trials: int) -> list[str]:
    """Return what would start a job sooner, as lines with a command.

    Args:
        job: A job that waits for free nodes.
        partitions: By name.
        trials: How many other partitions to try; 0 tries nothing.
    """
    lines, expected = [], site.start(job.start)
    others = [name for name, each in partitions.items() if name not in job.partition.split(",") and each.state == "UP"]
    for partition in others[:trials]:
        trial = site.trial(*sbatch_args(job, partition))
        if _is_sooner(trial, expected) and trial.start:
            lines.append(f"sooner in partition {partition} ({site.when(trial.start)}): "
                         f"scontrol update jobid={job.number} partition={partition}")
    return [*lines, *_half_limit(job)]


def _half_limit(job: Job) -> list[str]:
    """Return the command that halves the limit: Slurm fits short jobs into gaps before longer ones."""
    limit = site.seconds(job.limit)
    if limit < LONG_SECONDS:
        return []
    half = "04:00:00" if limit == float("inf") else _clock(int(limit) // 2)
    return [f"a shorter limit, if that is enough, lets Slurm fit it into a gap: "
            f"scontrol update jobid={job.number} timelimit={half}"]


def _is_sooner(trial: site.Trial, expected: datetime.datetime | None) -> bool:
    """Return whether a trial would start at least a minute before the expected start."""
    if trial.problem or trial.start is None:
        return False
    return expected is None or (expected - trial.start).total_seconds() > 60


def sbatch_args(job: Job, partition: str) -> list[str]:
    """Return sbatch's arguments for what a job asks for, in a partition."""
    nodes, gpus = int(job.nodes), slurm.gpus(job.gres)
    cpus = -(-int(job.cpus) // nodes)
    args = [f"--partition={partition}", f"--nodes={nodes}", "--ntasks-per-node=1", f"--cpus-per-task={cpus}"]
    args += [f"--gpus-per-node={gpus}"] if gpus else []
    args += ["--exclusive"] if job.shared == "NO" else []
    settings = {"account": job.account, "qos": job.qos, "mem": job.memory}
    args += [f"--{name}={value}" for name, value in settings.items() if value not in ("", "0", "(null)", "N/A")]
    return [*args, f"--time={job.limit}", "--wrap=true"]


def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
